"""What all builders of networks share: blocks of layers, and nodes as exporters write them."""
