"""A server of compiled models, which speaks the Open Inference Protocol over HTTP.

`graphflow serve` runs it.  It needs the extra `graphflow-compiler[serve]`; no other part imports
this one.  Each module is imported by itself:

    request in    connections → access → routes → request_bodies → inference_requests
    model         repository → model_files, model_loading → served_model
    batch         batching → served_model
    answer out    inference_responses → routes

What always holds: the event loop neither runs a model nor compiles or loads one.
"""
