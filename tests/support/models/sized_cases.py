"""Models of one input size or more, as texts of ONNX: which of them one program serves.

Each has the size `n`.  `ONE_PROGRAM` are those whose results for a run are computed from what the
run gives, element by element along the axes of the size; `EACH_SHAPE` maps a model that needs the
number, or combines elements, to the node and the reason that the warning names.
"""


def models(text: str) -> dict[str, str]:
    """By the line above it, each model, which is indented."""
    found: dict[str, str] = {}
    head = ""
    for line in text.strip().splitlines():
        if line.startswith(" "):
            found[head] = f"{found[head]} {line.strip()}".strip()
        else:
            head, found[line] = line, ""
    return found


ONE_PROGRAM = models(
    """
conv over spatial
    g (float[1,3,n,5] x, float[4,3,3,3] w) => (float[1,4,a,b] y) { y=Conv<pads=[1,1,1,1]>(x,w) }
maxpool places
    g (float[1,1,n] x) => (float[1,1,k] y, int64[1,1,k] i)
    { y,i=MaxPool<kernel_shape=[2],pads=[1,1]>(x) }
compress beside
    g (float[n,4] x, bool[4] c) => (float[n,k] y) { y=Compress<axis=1>(x,c) }
picked beside
    g (float[n,4] x, bool[4] c, float[n,1] z) => (float[n,k] y)
    { p=Compress<axis=1>(x,c) y=Add(p,z) }
picked and transposed
    g (float[n,4] x, bool[4] c) => (float[k,n] y) { p=Compress<axis=1>(x,c) y=Transpose(p) }
softmax
    g (float[n,4] x) => (float[n,4] y) { y = Softmax<axis=1>(x) }
reshape splits
    g (float[n,4] x) => (float[n,2,2] y) { s=Constant<value=int64[3] {-1,2,2}>() y = Reshape(x,s) }
reshape zero
    g (float[n,4] x) => (float[n,2,2] y) { s=Constant<value=int64[3] {0,2,2}>() y = Reshape(x,s) }
flatten 1
    g (float[n,4,2] x) => (float[a,b] y) { y = Flatten(x) }
concat along
    g (float[n,4] x) => (float[k,4] y) { y = Concat<axis=0>(x,x) }
concat along const
    g (float[n,4] x) => (float[k,4] y) <float[1,4] c={1,2,3,4}> { y = Concat<axis=0>(x,c) }
concat beside
    g (float[n,4] x) => (float[n,8] y) { r=Relu(x) y = Concat<axis=1>(x,r) }
slice along
    g (float[n,4] x) => (float[k,4] y)
    { a=Constant<value=int64[1] {0}>() e=Constant<value=int64[1] {2}>() y = Slice(x,a,e,a) }
slice all
    g (float[n,4] x) => (float[n,4] y) { a=Constant<value=int64[1] {0}>() e=Constant<value=int64[1]
    {9223372036854775807}>() y = Slice(x,a,e,a) }
slice hi
    g (float[n,4] x) => (float[k,4] y)
    { a=Constant<value=int64[1] {0}>() e=Constant<value=int64[1] {5}>() y = Slice(x,a,e,a) }
slice other axis
    g (float[n,4] x) => (float[n,2] y)
    { a=Constant<value=int64[1] {1}>() e=Constant<value=int64[1] {3}>() y = Slice(x,a,e,a) }
gather by input
    g (float[6,4] t, int64[n] i) => (float[n,4] y) { y = Gather<axis=0>(t,i) }
gather by computed
    g (float[3,4] t, int64[n] i) => (float[n,4] y)
    { o=Constant<value=int64 {1}>() j=Sub(i,o) y = Gather<axis=0>(t,j) }
split one
    g (float[n,4] x) => (float[a,4] y) { y = Split<axis=0>(x) }
split beside
    g (float[n,4] x) => (float[a,2] y, float[b,2] z) { y,z = Split<axis=1>(x) }
pad beside
    g (float[n,4] x) => (float[n,6] y) { p=Constant<value=int64[4] {0,1,0,1}>() y = Pad(x,p) }
pad reflect
    g (float[n,4] x) => (float[n,6] y)
    { p=Constant<value=int64[4] {0,1,0,1}>() y = Pad<mode="reflect">(x,p) }
tile beside
    g (float[n,4] x) => (float[n,8] y) { p=Constant<value=int64[2] {1,2}>() y = Tile(x,p) }
resize beside
    g (float[n,2,4,4] x) => (float[a,b,c,d] y) <float[4] s={1,1,2,2}>
    { y = Resize<mode="linear">(x,,s) }
resize cubic
    g (float[1,1,n,4] x) => (float[1,1,k,4] y) <float[4] s={1,1,2,1}>
    { y=Resize<mode="cubic">(x,,s) }
loop const
    g (float[n,4] x) => (float[n,4] y)
    { m=Constant<value=int64 {3}>() t=Constant<value=bool {1}>() y=Loop(m,t,x) <body = b (int64 k,
    bool c, float[n,4] v) => (bool d, float[n,4] w) { d=Identity(c) w=Add(v,v) }> }
scan
    g (float[3,n,4] x, float[n,4] z) => (float[n,4] y, float[3,n,4] w)
    { y,w=Scan<num_scan_inputs=1,body = b (float[n,4] s, float[n,4] v) => (float[n,4] t, float[n,4]
    u) { t=Add(s,v) u=Relu(t) }>(z,x) }
sequence
    g (float[n,4] x) => (float[n,4] y)
    { s=SequenceConstruct(x,x) i=Constant<value=int64 {0}>() y=SequenceAt(s,i) }
concat from sequence
    g (float[n,4] x) => (float[k,4] y) { s=SequenceConstruct(x,x) y=ConcatFromSequence<axis=0>(s) }
loop whose body reads a shape
    g (float[n,4] x) => (float[n,4] y)
    { s=Shape(x) m=Constant<value=int64 {3}>() t=Constant<value=bool {1}>() y=Loop(m,t,x)
    <body = b (int64 k, bool c, float[n,4] v) => (bool d, float[n,4] w)
    { d=Identity(c) e=ConstantOfShape<value=float[1] {2}>(s) w=Add(v,e) }> }
rows of a loop
    g (float[n,4] x) => (float[n,4] y, float[3,n,4] z)
    { m=Constant<value=int64 {3}>() t=Constant<value=bool {1}>() y,z=Loop(m,t,x) <body = b (int64 k,
    bool c, float[n,4] v) => (bool d, float[n,4] w, float[n,4] r) { d=Identity(c) w=Add(v,v)
    r=Relu(w) }> }
loop of sums over a size
    g (float[n,4] x) => (float[4] y) { o=Constant<value=int64[1] {0}>() a=ReduceSum<keepdims=0>(x,o)
    m=Constant<value=int64 {3}>() t=Constant<value=bool {1}>() y=Loop(m,t,a) <body = b (int64 k,
    bool c, float[4] v) => (bool d, float[4] w) { d=Identity(c) p=ReduceMax<axes=[0],keepdims=0>(x)
    w=Add(v,p) }> }
loop on size
    g (float[n,4] x) => (float[n,4] y) { s=Shape(x) i=Constant<value=int64 {0}>() m=Gather(s,i)
    t=Constant<value=bool {1}>() y=Loop(m,t,x) <body = b (int64 k, bool c, float[n,4] v) => (bool d,
    float[n,4] w) { d=Identity(c) w=Add(v,v) }> }
scan over size
    g (float[n,4] x, float[4] z) => (float[4] y, float[n,4] w) { y,w=Scan<num_scan_inputs=1,body = b
    (float[4] s, float[4] v) => (float[4] t, float[4] u) { t=Add(s,v) u=Relu(t) }>(z,x) }
topk of more than the least
    g (float[n,4] x) => (float[2,4] y, int64[2,4] z)
    { k=Constant<value=int64[1] {2}>() y,z = TopK<axis=0>(x,k) }
split to sequence
    g (float[n,4] x) => (float[1,4] y)
    { s=SplitToSequence<axis=0>(x) i=Constant<value=int64 {0}>() y=SequenceAt(s,i) }
rows of a sequence joined
    g (float[n,4,n] x) => (float[n,4,n] y, float[k,4] z, int64 m)
    { s=SplitToSequence<axis=2,keepdims=0>(x) y=ConcatFromSequence<axis=-1,new_axis=1>(s)
    z=ConcatFromSequence<axis=0>(s) m=SequenceLength(s) }
parts of a sequence joined
    g (float[4,n] x) => (float[1,k] y) { t=Transpose(x) s=SplitToSequence<axis=0>(t)
    y=ConcatFromSequence<axis=1>(s) }
split to sequence beside
    g (float[n,4] x) => (float[n,1] y)
    { s=SplitToSequence<axis=1>(x) i=Constant<value=int64 {2}>() y=SequenceAt(s,i) }
argmax beside
    g (float[n,4] x) => (int64[n,1] y) { y = ArgMax<axis=1>(x) }
argmax then gather
    g (float[n,4] x, float[4,3] t) => (float[n,3] y)
    { i = ArgMax<axis=1,keepdims=0>(x) y = Gather<axis=0>(t,i) }
topk beside
    g (float[n,4] x) => (float[n,2] y, int64[n,2] z)
    { k=Constant<value=int64[1] {2}>() y,z = TopK<axis=1>(x,k) }
where
    g (float[n,4] x, bool[n,1] c) => (float[n,4] y) { r=Relu(x) y = Where(c,x,r) }
expand to size
    g (float[n,4] x, float[1,4] z) => (float[n,4] y) { s=Shape(x) e = Expand(z,s) y=Add(x,e) }
expand ones
    g (float[n,4] x) => (float[2,n,4] y) { s=Constant<value=int64[3] {2,1,4}>() y = Expand(x,s) }
expand shared
    g (float[n,1] x) => (float[n,n] y)
    { s=Shape<end=1>(x) o=Constant<value=int64[1] {1}>() t=Concat<axis=0>(o,s) y=Expand(x,t) }
layernorm
    g (float[n,4] x, float[4] w) => (float[n,4] y) { y = LayerNormalization<axis=-1>(x,w) }
batchnorm
    g (float[n,3,2] x, float[3] a, float[3] b, float[3] c, float[3] d) => (float[n,3,2] y)
    { e=Abs(d) y = BatchNormalization(x,a,b,c,e) }
constantofshape
    g (float[n,4] x) => (float[n,4] y)
    { s=Shape(x) c=ConstantOfShape<value=float[1] {2}>(s) y=Mul(x,c) }
constantofshape out
    g (float[n,4] x) => (float[n,4] y) { s=Shape(x) y=ConstantOfShape<value=float[1] {2}>(s) }
onehot
    g (int64[n] i) => (float[n,3] y) <int64 d={3}, float[2] v={0,1}> { y = OneHot(i,d,v) }
onehot axis 0
    g (int64[n] i) => (float[3,n] y) <int64 d={3}, float[2] v={0,1}> { y = OneHot<axis=0>(i,d,v) }
scatter beside
    g (float[n,4] x, int64[n,1] i, float[n,1] u) => (float[n,4] y)
    { y = ScatterElements<axis=1>(x,i,u) }
gatherelements
    g (float[n,4] x, int64[n,2] i) => (float[n,2] y) { y = GatherElements<axis=1>(x,i) }
gathernd batch
    g (float[n,4] x, int64[n,1] i) => (float[n] y) { y = GatherND<batch_dims=1>(x,i) }
if on data
    g (float[n,4] x, bool c) => (float[n,4] y) { y=If(c) <then_branch = a () => (float[n,4] p) {
    p=Relu(x) }, else_branch = b () => (float[n,4] q) { q=Neg(x) }> }
squeeze axes
    g (float[n,1,4] x) => (float[n,4] y) { a=Constant<value=int64[1] {1}>() y = Squeeze(x,a) }
unsqueeze
    g (float[n,4] x) => (float[1,n,4] y) { a=Constant<value=int64[1] {0}>() y = Unsqueeze(x,a) }
cast int32
    g (float[n,4] x) => (float[k] y)
    { s=Shape<end=1>(x) b=Cast<to=6>(s) i=Cast<to=7>(b) y=ConstantOfShape(i) }
cast float
    g (float[n,4] x) => (float[k,4] y)
    { s=Shape(x) b=Cast<to=1>(s) i=Cast<to=7>(b) y=Expand(o,i) o=Constant<value=float[1] {3}>() }
add const row
    g (float[n,4] x) => (float[n,4] y) <float[1,4] c={1,2,3,4}> { y=Add(x,c) }
add itself transposed
    g (float[n,n] x) => (float[n,n] y) { t=Transpose<perm=[1,0]>(x) y=Add(x,t) }
add outer
    g (float[n,1] x) => (float[n,n] y) { t=Transpose<perm=[1,0]>(x) y=Add(x,t) }
matmul gram
    g (float[n,4] x) => (float[n,n] y) { t=Transpose<perm=[1,0]>(x) y=MatMul(x,t) }
gemm
    g (float[n,4] x, float[4,3] w, float[3] b) => (float[n,3] y) { y=Gemm(x,w,b) }
gemm bias sized
    g (float[n,4] x, float[4,3] w, float[n,3] b) => (float[n,3] y) { y=Gemm(x,w,b) }
gemm trans
    g (float[4,n] x, float[4,3] w) => (float[n,3] y) { y=Gemm<transA=1>(x,w) }
matmul sized weights
    g (float[n,2,4] x, float[n,4,3] w) => (float[n,2,3] y) { y=MatMul(x,w) }
matmul broadcast
    g (float[n,2,4] x, float[4,3] w) => (float[n,2,3] y) { y=MatMul(x,w) }
einsum
    g (float[n,2,4] x, float[n,4,3] w) => (float[n,2,3] y)
    { y=Einsum<equation="bij,bjk->bik">(x,w) }
instance norm
    g (float[n,3,5] x, float[3] a, float[3] b) => (float[n,3,5] y)
    { y=InstanceNormalization(x,a,b) }
mvn per sample
    g (float[n,3,2,2] x) => (float[n,3,2,2] y) { y=MeanVarianceNormalization<axes=[1,2,3]>(x) }
conv
    g (float[n,3,5,5] x, float[4,3,3,3] w) => (float[n,4,5,5] y) { y=Conv<pads=[1,1,1,1]>(x,w) }
conv grouped
    g (float[n,16,5,5] x, float[16,4,3,3] w) => (float[n,16,5,5] y)
    { y=Conv<pads=[1,1,1,1],group=4>(x,w) }
conv depthwise
    g (float[n,16,5,5] x, float[16,1,3,3] w) => (float[n,16,5,5] y)
    { y=Conv<pads=[1,1,1,1],group=16>(x,w) }
conv transpose
    g (float[n,3,5,5] x, float[3,4,3,3] w) => (float[n,4,a,b] y)
    { y=ConvTranspose<strides=[2,2]>(x,w) }
maxpool
    g (float[n,3,6,6] x) => (float[n,3,3,3] y) { y=MaxPool<kernel_shape=[2,2],strides=[2,2]>(x) }
global avg
    g (float[n,3,6,6] x) => (float[n,3,1,1] y) { y=GlobalAveragePool(x) }
depth to space
    g (float[n,8,2,2] x) => (float[n,2,4,4] y) { y=DepthToSpace<blocksize=2>(x) }
transpose
    g (float[n,4,3] x) => (float[4,3,n] y) { y=Transpose<perm=[1,2,0]>(x) }
trilu batch
    g (float[n,4,4] x) => (float[n,4,4] y) { y=Trilu(x) }
dropout
    g (float[n,4] x) => (float[n,4] y) { y=Dropout(x) }
lrn
    g (float[n,4,2,2] x) => (float[n,4,2,2] y) { y=LRN<size=3>(x) }
hardmax
    g (float[n,4] x) => (float[n,4] y) { y=Hardmax(x) }
reverse sequence
    g (float[4,n] x, int64[n] l) => (float[4,n] y)
    { o=Constant<value=int64 {1}>() m=Add(l,o) y=ReverseSequence<batch_axis=1,time_axis=0>(x,m) }
celu function
    g (float[n,4] x) => (float[n,4] y) { y=Celu(x) }
softmaxce none
    g (float[n,3] x, int64[n] l) => (float[n] y)
    { y=SoftmaxCrossEntropyLoss<reduction="none">(x,l) }
space
    g (float[n,3,8,8] x, float[n,4,4,2] g1) => (float[n,3,4,4] y) { y=GridSample(x,g1) }
space of a size
    g (float[2,3,n,5] x, float[2,4,n,2] g1) => (float[2,3,4,n] y)
    { y=GridSample<padding_mode="reflection">(x,g1) }
regions of a size
    g (float[n,3,n,7] x, float[n,4] r) => (float[n,3,2,2] y) <int64[1] z={0}>
    { s=Shape<end=1>(x) i=Expand(z,s) a=Abs(r)
    y=RoiAlign<output_height=2,output_width=2,sampling_ratio=2>(x,a,i) }
regions of a size, points by their sides
    g (float[2,3,5,n] x, float[n,4] r) => (float[n,3,2,2] y) <int64[1] z={1}>
    { s=Shape<end=1>(r) i=Expand(z,s) a=Abs(r) y=RoiAlign<output_height=2,output_width=2>(x,a,i) }
transform of rows of a size
    g (float[n,4,6,1] x) => (float[n,4,4,2] y) { y=DFT<axis=2,onesided=1>(x) }
space of a size, zeros
    g (float[2,3,4,n] x, float[2,4,3,2] g1) => (float[2,3,4,3] y)
    { t=Constant<value=float {2.0}>() m=Mul(g1,t) y=GridSample<align_corners=1>(x,m) }
size of other
    g (float[n,4] x, float[n,3] z) => (float[n,7] y) { y=Concat<axis=1>(x,z) }
reshape to sized
    g (float[n,4] x) => (float[n,2,2] y)
    { s=Shape<end=1>(x) t=Constant<value=int64[2] {2,2}>() u=Concat<axis=0>(s,t) y=Reshape(x,u) }
reshape ahead
    g (float[n,4] x) => (float[1,n,4] y)
    { s=Shape(x) t=Constant<value=int64[1] {1}>() u=Concat<axis=0>(t,s) y=Reshape(x,u) }
expand equal where
    g (float[n,4] x, float[1,1] z) => (float[n,4] y)
    { s=Shape(x) m=Constant<value=int64[2] {-1,-1}>() e=Equal(s,m) o=Constant<value=int64[2]
    {1,1}>() w=Where(e,o,s) p=Expand(z,w) y=Add(x,p) }
quantize
    g (float[n,4] x, float[3,4] w0) => (float[n,4] y) <float s={0.1}, uint8 z={128}>
    { q=QuantizeLinear(x,s,z) y=DequantizeLinear(q,s,z) }
half
    g (float16[n,4] x, float16[4,3] w) => (float16[n,3] y) { m=MatMul(x,w) y=Relu(m) }
half layernorm
    g (float16[n,4] x, float16[4] w) => (float16[n,4] y) { y=LayerNormalization(x,w) }
ms layernorm
    g (float[n,3,4] x, float[n,3,4] r, float[4] w, float[4] b) => (float[n,3,4] y)
    { y=com.microsoft.SkipLayerNormalization(x,r,w,b) }
ms gelu
    g (float[n,4] x) => (float[n,4] y) { y=com.microsoft.Gelu(x) }
ms biasgelu
    g (float[n,4] x, float[4] b) => (float[n,4] y) { y=com.microsoft.BiasGelu(x,b) }
fallback unary
    g (float[n,4] x) => (float[n,4] y)
    { r=Relu(x) d=Det(q) q=Constant<value=float[2,2] {1,2,3,4}>() y=Add(r,d) }
identity
    g (float[n,4] x) => (float[n,4] y) { y=Identity(x) }
int input
    g (int64[n,4] x) => (int64[n,4] y) { y=Add(x,x) }
idiv
    g (int64[n,4] x, int64[n,4] z) => (int64[n,4] y)
    { o=Constant<value=int64 {1}>() w=Add(z,o) y=Div(x,w) }
mod
    g (int64[n,4] x, int64[n,4] z) => (int64[n,4] y)
    { o=Constant<value=int64 {1}>() w=Add(z,o) y=Mod(x,w) }
upsample seq
    g (float[2,n,8] x, float[8,8] w) => (float[2,n,8] y) { m=MatMul(x,w) y=Softmax<axis=-1>(m) }
ms attention
    g (float[n,3,8] x, float[8,24] w, float[24] b) => (float[n,3,8] y)
    { y=com.microsoft.Attention<num_heads=2>(x,w,b) }
ms attention mask
    g (float[n,3,8] x, float[8,24] w, float[24] b, int32[n,3] m) => (float[n,3,8] y)
    { y=com.microsoft.Attention<num_heads=2>(x,w,b,m) }
ms attention of any length
    g (float[2,n,8] x, float[8,24] w, float[24] b, int32[2] m) => (float[2,n,8] y)
    { y=com.microsoft.Attention<num_heads=2,unidirectional=1>(x,w,b,m) }
ms attention behind keys
    g (float[1,3,8] x, float[8,24] w, float[24] b, float[2,1,2,n,4] p)
    => (float[1,3,8] y, float[2,1,2,k,4] q)
    { y,q=com.microsoft.Attention<num_heads=2,unidirectional=1>(x,w,b,,p) }
ms multihead
    g (float[2,n,8] x, float[8] b, float[1,2,n,n] s) => (float[2,n,8] y)
    { y=com.microsoft.MultiHeadAttention<num_heads=2>(x,x,x,,,s) }
ms multihead causal
    g (float[2,3,8] x, float[2,2,n,4] k, float[2,2,n,4] v)
    => (float[2,3,8] y, float[2,2,m,4] a, float[2,2,m,4] b)
    { y,a,b=com.microsoft.MultiHeadAttention<num_heads=2,unidirectional=1>(x,x,x,,,,k,v) }
ms rotary
    g (float[2,n,8] x, int64[1] p, float[16,2] c, float[16,2] s) => (float[2,n,8] y)
    { y=com.microsoft.RotaryEmbedding(x,p,c,s) }
ms embed layernorm
    g (int32[n,3] i, int32[n,3] s, float[4,8] w, float[4,8] p, float[4,8] q, float[8] a, float[8] b)
    => (float[n,3,8] y, int32[n] m) { y,m=com.microsoft.EmbedLayerNormalization(i,s,w,p,q,a,b) }
ms embed layernorm of any length
    g (int32[2,n] i, float[4,8] w, float[8,8] p, float[8] a, float[8] b, int32[2,n] k)
    => (float[2,n,8] y, int32[2] m) { y,m=com.microsoft.EmbedLayerNormalization(i,,w,p,,a,b,k) }
ms skip norm
    g (float[2,n,8] x, float[2,n,8] z, float[8] w) => (float[2,n,8] y)
    { y=com.microsoft.SkipSimplifiedLayerNormalization(x,z,w) }
ms fusedmatmul
    g (float[n,4] x, float[3,4] w) => (float[n,3] y) { y=com.microsoft.FusedMatMul<transB=1>(x,w) }
ms fusedmatmul tr
    g (float[4,n] x, float[4,3] w) => (float[n,3] y) { y=com.microsoft.FusedMatMul<transA=1>(x,w) }
attention batch
    g (float[n,3,8] x, float[8,8] w) => (float[n,3,8] y)
    { q=MatMul(x,w) t=Transpose<perm=[0,2,1]>(x) s=MatMul(q,t) p=Softmax<axis=-1>(s) y=MatMul(p,x) }
own function
    g (float[n,4] x) => (float[n,4] y) { y=own.scaled(x) } <domain: "own", opset_import: ["" : 17]>
    scaled (x) => (y) { s=Shape(x) c=ConstantOfShape<value=float[1] {2}>(s) y=Mul(x,c) }
index from float
    g (float[n,4] x, float[9,3] t) => (float[n,3] y)
    { a=Abs(x) s=ReduceMax<axes=[1],keepdims=0>(a) i=Cast<to=7>(s) y=Gather<axis=0>(t,i) }
index from conv
    g (float[n,3,5,5] x, float[4,3,5,5] w, float[9,3] t) => (float[n,1,1,3] y)
    { c=Conv(x,w) i=ArgMax<axis=1,keepdims=0>(c) y=Gather<axis=0>(t,i) }
conv twice
    g (float[n,3,5,5] x, float[8,3,3,3] w, float[4,8,3,3] v) => (float[n,4,5,5] y)
    { a=Conv<pads=[1,1,1,1]>(x,w) b=Relu(a) c=Conv<pads=[1,1,1,1]>(b,v) y=Softmax<axis=1>(c) }
axis sizes swapped
    g (float[n,n,4] x) => (float[n,n,4] y) { t=Transpose<perm=[1,0,2]>(x) y=Add(x,t) }
groups conv stack
    g (float[n,32,6,6] x, float[32,8,3,3] w) => (float[n,32,6,6] y)
    { a=Conv<pads=[1,1,1,1],group=4>(x,w) b=Relu(a) y=Add(b,x) }
prelu
    g (float[n,3,2,2] x, float[3,1,1] s) => (float[n,3,2,2] y) { y=PRelu(x,s) }
lp pool
    g (float[n,3,4,4] x) => (float[n,3,2,2] y) { y=LpPool<kernel_shape=[2,2],strides=[2,2]>(x) }
concat of three
    g (float[n,4] x, float[2,4] z) => (float[k,4] y) { y=Concat<axis=0>(z,x,z) }
concat along then matmul
    g (float[n,4] x, float[4,16] w) => (float[k,16] y)
    { r=Relu(x) c=Concat<axis=0>(x,r) y=MatMul(c,w) }
slice then matmul
    g (float[n,4] x, float[4,16] w) => (float[k,16] y) { a=Constant<value=int64[1] {0}>()
    e=Constant<value=int64[1] {3}>() c=Slice(x,a,e,a) y=MatMul(c,w) }
mix heads
    g (float[n,4] x, float[n,4] z) => (float[k,4] y) { a=Constant<value=int64[1] {0}>()
    e=Constant<value=int64[1] {3}>() c=Slice(x,a,e,a) d=Slice(z,a,e,a) y=Add(c,d) }
mean over batch
    g (float[n,4] x) => (float[1,4] y) { y = ReduceMean<axes=[0], keepdims=1>(x) }
softmax over batch
    g (float[n,4] x) => (float[n,4] y) { y = Softmax<axis=0>(x) }
range of size
    g (float[n,4] x) => (int64[k] y) { s = Shape(x) i=Constant<value=int64 {0}>() e = Gather(s,i)
    o=Constant<value=int64 {1}>() y = Range(i,e,o) }
gather along
    g (float[n,4] x) => (float[1,4] y) { i=Constant<value=int64[1] {0}>() y = Gather<axis=0>(x,i) }
gather last
    g (float[n,4] x) => (float[1,4] y) { i=Constant<value=int64[1] {-1}>() y = Gather<axis=0>(x,i) }
cumsum along
    g (float[n,4] x) => (float[n,4] y) { a=Constant<value=int64 {0}>() y = CumSum(x,a) }
cumsum reverse
    g (float[n,4] x) => (float[n,4] y) { a=Constant<value=int64 {0}>() y = CumSum<reverse=1>(x,a) }
argmax along
    g (float[n,4] x) => (int64[1,4] y) { y = ArgMax<axis=0>(x) }
constantofshape mean
    g (float[n,4] x) => (float[1,4] y) { s=Shape(x) c=ConstantOfShape<value=float[1] {2}>(s)
    y=ReduceSum<keepdims=1>(c,a) a=Constant<value=int64[1] {0}>() }
matmul gram inner
    g (float[n,4] x) => (float[4,4] y) { t=Transpose<perm=[1,0]>(x) y=MatMul(t,x) }
mvn
    g (float[n,3,2,2] x) => (float[n,3,2,2] y) { y=MeanVarianceNormalization(x) }
sum all
    g (float[n,4] x) => (float y) { y=ReduceSum<keepdims=0>(x) }
trilu
    g (float[n,n] x) => (float[n,n] y) { y=Trilu(x) }
softmaxce
    g (float[n,3] x, int64[n] l) => (float y) { y=SoftmaxCrossEntropyLoss(x,l) }
nll mean
    g (float[n,3] x, int64[n] l) => (float y) { y=NegativeLogLikelihoodLoss(x,l) }
range like
    g (float[n,4] x) => (float[n,4] y) { s=Shape(x) c=ConstantOfShape<value=int64[1] {1}>(s)
    a=Constant<value=int64 {0}>() k=CumSum(c,a) f=Cast<to=1>(k) y=Add(x,f) }
center crop
    g (float[n,4] x) => (float[k,4] y)
    { s=Shape<end=1>(x) a=Constant<value=int64[1] {0}>() y=Slice(x,a,s,a) }
conv of dequantized weights
    g (float[1,1,n] x) => (float[1,1,k] y) <int8[1,1,2] q={1,2}, float s={0.5}>
    { w=DequantizeLinear(q,s) y=Conv<pads=[0,1]>(x,w) }
dynamic quantize
    g (float[n,4] x) => (uint8[n,4] y, float s, uint8 z) { y,s,z=DynamicQuantizeLinear(x) }
attention seq
    g (float[1,n,8] x, float[8,8] w) => (float[1,n,8] y)
    { q=MatMul(x,w) t=Transpose<perm=[0,2,1]>(x) s=MatMul(q,t) p=Softmax<axis=-1>(s) y=MatMul(p,x) }
own mean
    g (float[n,4] x) => (float[n,4] y) { y=own.mean(x) } <domain: "own", opset_import: ["" : 17]>
    mean (x) => (y) { m=ReduceMean<axes=[0],keepdims=1>(x) y=Sub(x,m) }
two outputs
    g (float[n,4] x) => (float[n,4] y, float[1,4] z) { y=Relu(x) z=ReduceMax<axes=[0]>(y) }
conv then mean over batch
    g (float[n,3,5,5] x, float[8,3,3,3] w) => (float[8,5,5] y)
    { a=Conv<pads=[1,1,1,1]>(x,w) y=ReduceMean<axes=[0],keepdims=0>(a) }
max of all
    g (float[n,4] x) => (float[n,4] y) { m=ReduceMax<keepdims=0>(x) y=Sub(x,m) }
rows of twice a size
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) d=Add(s,s) y=ConstantOfShape(d) }
rows of a multiple
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) d=Mul(s,t) e=Sub(d,s)
    t=Constant<value=int64[1] {3}>() y=ConstantOfShape(e) }
sizes that cancel
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) d=Add(s,t) e=Sub(d,s)
    t=Constant<value=int64[1] {3}>() y=ConstantOfShape(e) }
equal sums
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) d=Add(s,s) e=Mul(s,t)
    t=Constant<value=int64[1] {2}>() a=ConstantOfShape(d) b=ConstantOfShape(e) y=Add(a,b) }
all but the last
    g (float[n,4] x) => (float[k,4] y) { s=Shape<end=1>(x) o=Constant<value=int64[1] {1}>()
    m=Sub(s,o) z=Constant<value=int64[1] {0}>() y=Slice(x,z,m,z) }
concat then product
    g (float[n,4] x, float[2,4] z) => (float[4,4] y) { c=Concat<axis=0>(x,z,x)
    t=Transpose(c) y=MatMul(t,c) }
concat beside a size
    g (float[2,n,4] x, float[2,1,4] z) => (float[2,k,4] y) { c=Concat<axis=1>(x,z)
    y=Softmax<axis=1>(c) }
shape of a concat
    g (float[n,4] x) => (float[k,4] y) <int64[1] f={4}> { c=Concat<axis=0>(x,x)
    s=Shape<end=1>(x) t=Add(s,s) u=Concat<axis=0>(t,f) o=ConstantOfShape<value=float[1]{2}>(u)
    v=Shape(c) p=ConstantOfShape<value=float[1]{1}>(v) a=Add(o,p) y=Mul(c,a) }
tile by sizes
    g (float[n,4] x, float[1,4] z) => (float[n,4] y)
    { s=Shape<end=1>(x) o=Constant<value=int64[1] {1}>() r=Concat<axis=0>(s,o) y=Tile(z,r) }
tile of several by sizes
    g (float[n,4] x, float[2,4] z) => (float[k,8] y)
    { s=Shape<end=1>(x) o=Constant<value=int64[1] {2}>() r=Concat<axis=0>(s,o) y=Tile(z,r) }
range from a number
    g (float[n,4] x) => (int64[k] y) { s=Shape<end=1>(x) i=Constant<value=int64 {-2}>()
    e=Squeeze(s) o=Constant<value=int64 {1}>() y=Range(i,e,o) }
range from a size
    g (float[n,4] x) => (int64[k] y) { s=Shape<end=1>(x) e=Squeeze(s) d=Add(e,e)
    o=Constant<value=int64 {1}>() y=Range(e,d,o) }
range down to a number
    g (float[n,4] x) => (int64[k] y) { s=Shape<end=1>(x) i=Constant<value=int64 {7}>()
    e=Squeeze(s) o=Constant<value=int64 {1}>() y=Range(e,i,o) }
range of three from a size
    g (float[n,4] x) => (int64[3] y) { s=Shape<end=1>(x) e=Squeeze(s) t=Constant<value=int64 {3}>()
    d=Add(e,t) o=Constant<value=int64 {1}>() y=Range(e,d,o) }
range of floats from a number
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) i=Constant<value=float {-1}>()
    e=Squeeze(s) f=Cast<to=1>(e) o=Constant<value=float {1}>() y=Range(i,f,o) }
suppression in each of a batch
    g (float[n,3,4] x, float[n,1,3] s) => (int64[k,3] y) <int64 m={2}>
    { y=NonMaxSuppression(x,s,m) }
suppression of some boxes
    g (float[2,n,4] x, float[2,3,n] s) => (int64[k,3] y) <int64 m={3}, float[1] o={0.3}>
    { y=NonMaxSuppression<center_point_box=1>(x,s,m,o) }
suppression for some classes
    g (float[2,6,4] x, float[2,n,6] s) => (int64[k,3] y) <int64 m={3}, float[1] o={0.3},
    float[1] t={0}> { y=NonMaxSuppression(x,s,m,o,t) }
range in steps
    g (float[n,4] x) => (int64[k] y) { s=Shape<end=1>(x) i=Constant<value=int64 {0}>()
    e=Squeeze(s) o=Constant<value=int64 {2}>() y=Range(i,e,o) }
range in steps down
    g (float[n,4] x) => (int64[k] y) { s=Shape<end=1>(x) z=Squeeze(s)
    e=Constant<value=int64 {-2}>() o=Constant<value=int64 {-3}>() y=Range(z,e,o) }
range of floats down
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) z=Squeeze(s) m=Neg(z) i=Cast<to=1>(z)
    e=Cast<to=1>(m) o=Constant<value=float {-1.0}>() y=Range(i,e,o) }
range up to a fraction
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) z=Squeeze(s) i=Cast<to=1>(z)
    e=Constant<value=float {7.5}>() o=Constant<value=float {1.0}>() y=Range(i,e,o) }
range down to a fraction
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) z=Squeeze(s) i=Cast<to=1>(z)
    e=Constant<value=float {-2.5}>() o=Constant<value=float {-2.0}>() y=Range(i,e,o) }
non zero of a size
    g (float[n,4] x) => (int64[2,k] y) { y=NonZero(x) }
sum of a range
    g (float[n,4] x) => (int64[1] y) { s=Shape<end=1>(x) i=Constant<value=int64 {0}>()
    e=Squeeze(s) o=Constant<value=int64 {1}>()
    r=Range(i,e,o) y=ReduceSum(r) }
range and a number
    g (float[n,4] x) => (int64[n] y) { s=Shape<end=1>(x) i=Constant<value=int64 {0}>()
    e=Squeeze(s) o=Constant<value=int64 {1}>()
    r=Range(i,e,o) y=Add(r,o) }
last of a range
    g (float[n,4] x) => (int64[1] y) { s=Shape<end=1>(x) i=Constant<value=int64 {0}>()
    e=Squeeze(s) o=Constant<value=int64 {1}>()
    r=Range(i,e,o) k=Constant<value=int64[1] {-1}>() y=Gather(r,k) }
mask of ranges
    g (float[n,4] x) => (bool[n,n] y) { s=Shape<end=1>(x) i=Constant<value=int64 {0}>()
    e=Squeeze(s) o=Constant<value=int64 {1}>()
    r=Range(i,e,o) u=Constant<value=int64[1] {1}>() a=Unsqueeze(r,u)
    y=Less(r,a) }
sine of a range
    g (float[n,4] x) => (float[n] y) { s=Shape<end=1>(x) i=Constant<value=int64 {0}>()
    e=Squeeze(s) o=Constant<value=int64 {1}>()
    r=Range(i,e,o) f=Cast<to=1>(r) y=Sin(f) }
picked and joined
    g (float[n,4] x, bool[4] c) => (float[n,k] y) { p=Compress<axis=1>(x,c)
    y=Concat<axis=1>(p,x,p) }
shape of a head
    g (float[n,4] x) => (float[k,4] y) { z=Constant<value=int64[1] {0}>()
    e=Constant<value=int64[1] {3}>() h=Slice(x,z,e,z) s=Shape(h)
    o=ConstantOfShape<value=float[1] {2}>(s) y=Mul(h,o) }
causal
    g (float[n,4] x) => (float[n,n] y) { s=Shape<end=1>(x) u=Concat<axis=0>(s,s)
    o=ConstantOfShape<value=float[1] {2}>(u) y=Trilu<upper=0>(o) }
pad along
    g (float[n,4] x) => (float[k,4] y) { p=Constant<value=int64[4] {1,0,1,0}>() y = Pad(x,p) }
conv 1x1 spatial
    g (float[1,3,n,5] x, float[4,3,1,1] w) => (float[1,4,n,5] y) { y=Conv(x,w) }
global avg sized
    g (float[1,3,n,6] x) => (float[1,3,1,1] y) { y=GlobalAveragePool(x) }
seq conv1d 2
    g (float[2,3,n] x, float[4,3,1] w) => (float[2,4,n] y) { y=Conv(x,w) }
conv strided
    g (float[1,2,n,5] x) => (float[1,2,a,b] y) { r=Constant<value=float[12]
    {1,2,3,4,5,6,-1,-2,-3,1,0,2}>() s=Constant<value=int64[4] {2,2,3,1}>() w=Reshape(r,s)
    y=Conv<strides=[2,1],pads=[1,0,1,0]>(x,w) }
conv twice along
    g (float[2,1,n] x) => (float[2,1,k] y) <float[1,1,3] w={1,2,3}, float[1] b={0.5}>
    { a=Conv<pads=[1,1]>(x,w,b) r=Relu(a) t=Conv<strides=[2],pads=[1,1]>(r,w)
    o=Transpose<perm=[0,2,1]>(t) q=Softmax<axis=1>(o) y=Transpose<perm=[0,2,1]>(q) }
conv of any weights without pads
    g (float[1,2,n,5] x, float[3,2,1,2] w) => (float[1,3,a,b] y) { y=Conv<strides=[3,1]>(x,w) }
conv same
    g (float[1,1,n] x) => (float[1,1,k] y) <float[1,1,2] w={1,2}>
    { y=Conv<auto_pad="SAME_UPPER",strides=[2]>(x,w) }
conv half
    g (float16[1,1,n] x) => (float16[1,1,k] y) <float16[1,1,3] w={1,2,3}>
    { y=Conv<pads=[1,1],strides=[2]>(x,w) }
maxpool along
    g (float[1,2,n,6] x) => (float[1,2,a,b] y)
    { y=MaxPool<kernel_shape=[3,2],strides=[2,2],pads=[1,0,1,0],ceil_mode=1>(x) }
average pool along
    g (float[1,2,n,6] x) => (float[1,2,a,b] y)
    { y=AveragePool<kernel_shape=[3,2],strides=[2,2],pads=[1,0,1,0]>(x) }
average pool with pads
    g (float[1,2,n,6] x) => (float[1,2,a,b] y)
    { y=AveragePool<kernel_shape=[3,2],strides=[2,2],pads=[1,0,1,0],count_include_pad=1>(x) }
average pool ceil
    g (float[1,2,n,6] x) => (float[1,2,a,b] y)
    { y=AveragePool<kernel_shape=[2,2],strides=[2,2],ceil_mode=1>(x) }
lp pool along
    g (float[1,2,n,4] x) => (float[1,2,a,b] y)
    { y=LpPool<kernel_shape=[2,2],pads=[1,1,1,1],p=1>(x) }
pad both ends
    g (float[n,4] x) => (float[a,b] y) <float v={7}> { p=Constant<value=int64[4] {2,1,3,0}>()
    q=Pad(x,p,v) y=Softmax<axis=0>(q) }
pad crops
    g (float[n,4] x) => (float[k,4] y) { p=Constant<value=int64[4] {-1,0,2,0}>() y=Pad(x,p) }
pad by edges
    g (float[n,4] x) => (float[k,6] y) { p=Constant<value=int64[4] {2,1,1,1}>()
    y=Pad<mode="edge">(x,p) }
global max sized
    g (float[1,3,n,6] x) => (float[1,3,1,1] y) { y=GlobalMaxPool(x) }
global lp sized
    g (float[1,3,n,6] x) => (float[1,3,1,1] y) { y=GlobalLpPool<p=2>(x) }
global avg of both
    g (float[2,3,n,n] x) => (float[2,3,1,1] y) { y=GlobalAveragePool(x) }
instance norm along
    g (float[2,3,n] x, float[3] a, float[3] b) => (float[2,3,n] y)
    { y=InstanceNormalization(x,a,b) }
reshape merges
    g (float[n,4] x) => (float[k,2] y) { s=Constant<value=int64[2] {-1,2}>() y = Reshape(x,s) }
reshape flat
    g (float[n,4] x) => (float[k] y) { s=Constant<value=int64[1] {-1}>() y = Reshape(x,s) }
flatten 0
    g (float[n,4] x) => (float[a,b] y) { y = Flatten<axis=0>(x) }
flatten 2
    g (float[n,4,2] x) => (float[a,b] y) { y = Flatten<axis=2>(x) }
reshape last
    g (float[n,4] x) => (float[a,b] y)
    { s=Shape<end=1>(x) t=Constant<value=int64[1] {-1}>() u=Concat<axis=0>(t,s) y=Reshape(x,u) }
reshape swaps
    g (float[n,5,4] x) => (float[5,n,4] y)
    { s=Shape(x) i=Constant<value=int64[3] {1,0,2}>() t=Gather(s,i) y=Reshape(x,t) }
reshape states hi
    g (float[n,5] x) => (float[a,b] y) { s=Constant<value=int64[2] {5,-1}>() y=Reshape(x,s) }
reshape and back
    g (float[n,3,4] x, float[4,8] w) => (float[n,3,8] y) { a=Constant<value=int64[2] {-1,4}>()
    f=Reshape(x,a) m=MatMul(f,w) s=Shape<end=2>(x) l=Constant<value=int64[1] {-1}>()
    t=Concat<axis=0>(s,l) y=Reshape(m,t) }
reshape inner
    g (float[2,3,n] x) => (float[k,2] y) { a=Constant<value=int64[1] {-1}>() f=Reshape(x,a)
    u=Constant<value=int64[2] {-1,2}>() y=Reshape(f,u) }
resize along
    g (float[n,2,4,4] x) => (float[a,b,c,d] y) <float[4] s={2,1,1,1}> { y = Resize(x,,s) }
resize sizes
    g (float[n,2,4,4] x) => (float[a,b,c,d] y) <int64[4] s={5,2,8,8}> { y = Resize(x,,,s) }
resize by sizes
    g (float[n,2,4,4] x) => (float[n,2,8,8] y)
    { s=Shape<end=2>(x) o=Constant<value=int64[2] {8,8}>() r=Concat<axis=0>(s,o) y=Resize(x,,,r) }
resize to another
    g (float[1,1,n,4] x) => (float[1,1,k,4] y) { p=MaxPool<kernel_shape=[2,1],strides=[2,1],
    pads=[1,0,0,0]>(x) s=Shape(x) r=Resize<mode="linear">(p,,,s) y=Add(r,x) }
scaled in floats
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) f=Cast<to=1>(s)
    h=Constant<value=float {0.5}>() m=Mul(f,h) d=Floor(m) i=Cast<to=7>(d)
    t=Constant<value=int64[1] {2}>() e=Div(s,t) a=ConstantOfShape(i) b=ConstantOfShape(e)
    y=Add(a,b) }
halves rounded up
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) f=Cast<to=1>(s)
    h=Constant<value=float {4}>() m=Div(f,h) d=Ceil(m) i=Cast<to=7>(d) y=ConstantOfShape(i) }
scaled and cast
    g (float[1,1,n,4] x) => (float[1,1,k,6] y) { s=Shape<start=2>(x) f=Cast<to=1>(s)
    h=Constant<value=float {1.5}>() m=Mul(f,h) j=Cast<to=7>(m) c=Shape<end=2>(x)
    o=Constant<value=int64[2] {1,0}>() i=Add(j,o) r=Concat<axis=0>(c,i)
    y=Resize<mode="linear">(x,,,r) }
concat then mean
    g (float[n,4] x) => (float[4] y) { c=Concat<axis=0>(x,x) y=ReduceMean<axes=[0],keepdims=0>(c) }
slice last
    g (float[n,4] x) => (float[k,4] y) { a=Constant<value=int64[1] {-1}>() e=Constant<value=int64[1]
    {9223372036854775807}>() z=Constant<value=int64[1] {0}>() y = Slice(x,a,e,z) }
cumsum beside
    g (float[n,4] x) => (float[n,4] y) { a=Constant<value=int64 {1}>() y = CumSum(x,a) }
range like 1
    g (float[n,4] x) => (float[n,4] y) { s=Shape(x) c=ConstantOfShape<value=int64[1] {1}>(s)
    a=Constant<value=int64 {1}>() k=CumSum(c,a) f=Cast<to=1>(k) y=Add(x,f) }
minus one
    g (float[n,4] x) => (float[k,4] y) { s=Shape<end=1>(x) o=Constant<value=int64[1] {1}>()
    m=Sub(s,o) z=Constant<value=int64[1] {0}>() y=Slice(x,m,s,z) }
half of a size
    g (float[n,4] x) => (float[k,4] y) { s=Shape<end=1>(x) t=Constant<value=int64[1] {2}>()
    h=Div(s,t) z=Constant<value=int64[1] {0}>() y=Slice(x,z,h,z) }
equal quotients
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) t=Constant<value=int64[1] {2}>()
    u=Constant<value=int64[1] {3}>() w=Constant<value=int64[1] {6}>()
    a=Add(s,s) b=Add(a,s) c=Div(b,t) d=Div(c,u) e=Div(b,w) f=Div(s,t)
    p=ConstantOfShape(d) q=ConstantOfShape(e) r=ConstantOfShape(f) v=Add(p,q) y=Add(v,r) }
size and its remainder
    g (float[n,4] x) => (float[k,4] y) { s=Shape<end=1>(x) t=Constant<value=int64[1] {3}>()
    r=Mod(s,t) a=Sub(s,r) z=Constant<value=int64[1] {0}>() y=Slice(x,z,a,z) }
argmax last along
    g (float[n,4] x) => (int64[1,4] y) { y = ArgMax<axis=0,select_last_index=1>(x) }
argmin last along
    g (int64[4,n] x) => (int64[4] y) { y = ArgMin<axis=-1,keepdims=0,select_last_index=1>(x) }
gather in sized
    g (float[n,4] x, int64[2] i) => (float[2,4] y)
    { z=Constant<value=int64 {0}>() j=Mul(i,z) y = Gather<axis=0>(x,j) }
gather from the end
    g (float[2,n,4] x, int32[3] i) => (float[2,3,4] y)
    { z=Constant<value=int32 {1}>() o=Mul(i,m) m=Constant<value=int32 {0}>() j=Sub(o,z)
    y = Gather<axis=1>(x,j) }
gather by the largest
    g (float[2,n,4] x, int64[2,n] t) => (float[2,1,4] y) { i=ArgMax<axis=-1,keepdims=0>(t)
    u=Constant<value=int64[1] {1}>() j=Unsqueeze(i,u) b=Constant<value=int64[2,1] {0,1}>()
    k=Concat<axis=1>(b,j) g=GatherND(x,k) y=Unsqueeze(g,u) }
gather of all
    g (float[n,4] x) => (float[n,4] y) { z=Constant<value=int64[1] {0}>() s=Shape<end=1>(x)
    e=Squeeze(s) o=Constant<value=int64 {1}>() a=Constant<value=int64 {0}>() r=Range(a,e,o)
    q=Neg(r) p=Sub(q,o) y=Gather(x,p) }
gatherelements along
    g (float[n,4] x) => (float[n,4] y)
    { i,j=TopK<axis=0>(x,s) s=Shape<end=1>(x) y=GatherElements<axis=0>(x,j) }
gathernd
    g (float[n,4] x, int64[2,1] i) => (float[2,4] y)
    { z=Constant<value=int64 {0}>() j=Mul(i,z) y = GatherND(x,j) }
gathernd of two axes
    g (float[4,n,3] x, int64[5,2] i) => (float[5,3] y) <int64[1,2] m={1,0}>
    { j=Mul(i,m) k=Sub(j,o) o=Constant<value=int64[1,2] {4,1}>() y = GatherND(x,k) }
gathernd in a batch
    g (float[n,n,3] x, int64[n,1] i) => (float[n,3] y)
    { z=Constant<value=int64 {0}>() j=Mul(i,z) y = GatherND<batch_dims=1>(x,j) }
boxes that suppression keeps
    g (float[n,6,4] x, float[n,2,6] s) => (float[k,4] y, int64[k] c) <int64 m={3}>
    { p=NonMaxSuppression(x,s,m) i=Constant<value=int64[2] {0,2}>() t=Gather<axis=1>(p,i)
    y=GatherND(x,t) o=Constant<value=int64 {1}>() c=Gather<axis=1>(p,o) }
scatter into
    g (float[n,4] x, float[1,4] u) => (float[n,4] y)
    { i=Constant<value=int64[1,1] {0}>() y = ScatterND(x,i,u) }
scatter elements into
    g (float[n,4] x) => (float[n,4] y) <int64[1,4] i={0,0,0,0}, float[1,4] u={1,2,3,4}>
    { y = ScatterElements<axis=0>(x,i,u) }
scatter last
    g (float[n,4] x) => (float[n,4] y) <int64[1,4] i={-1,-1,-1,-1}, float[1,4] u={1,2,3,4}>
    { y = ScatterElements<axis=0>(x,i,u) }
scatter back
    g (float[n,4] x, float[n,4] u) => (float[n,4] y)
    { s=Shape<end=1>(x) i,j=TopK<axis=0>(x,s) y = ScatterElements<axis=0>(u,j,i) }
scatter many into few
    g (float[3,4] x, int64[n,4] i, float[n,4] u) => (float[3,4] y)
    { y = ScatterElements<axis=0,reduction="add">(x,i,u) }
scatter tuples
    g (float[4,n,3] x, int64[n,2] i, float[n,3] u) => (float[4,n,3] y) <int64[1,2] m={1,0}>
    { j=Mul(i,m) k=Sub(j,o) o=Constant<value=int64[1,2] {4,1}>()
    y = ScatterND<reduction="max">(x,k,u) }
scatter columns
    g (float[3,n] x, int64[2,1] i, float[2,n] u) => (float[3,n] y)
    { y = ScatterND<reduction="mul">(x,i,u) }
lstm batch
    g (float[3,n,2] x, float[1,8,2] w, float[1,8,2] r) => (float[3,1,n,2] y)
    { y=LSTM<hidden_size=2>(x,w,r) }
lstm seq
    g (float[n,2,2] x, float[1,8,2] w, float[1,8,2] r) => (float[n,1,2,2] y)
    { y=LSTM<hidden_size=2>(x,w,r) }
lstm of both ends
    g (float[n,n,3] x, float[2,20,3] w, float[2,20,5] r, float[2,40] b, float[2,n,5] h,
    float[2,n,5] c, float[2,15] p) => (float[n,2,n,5] y, float[2,n,5] yh, float[2,n,5] yc)
    { y,yh,yc=LSTM<hidden_size=5,direction="bidirectional">(x,w,r,b,,h,c,p) }
lstm backwards with lengths
    g (float[n,4,3] x, float[1,20,3] w, float[1,20,5] r, float[1,40] b, int32[4] k)
    => (float[n,1,4,5] y, float[1,4,5] h) <int32[4] z={1,1,1,1}> { l=Min(k,z) o=Max(l,z)
    y,h=LSTM<hidden_size=5,direction="reverse">(x,w,r,b,o) }
gru batch last
    g (float[3,n,2] x, float[1,6,2] w, float[1,6,2] r) => (float[1,n,2] h)
    { y,h=GRU<hidden_size=2>(x,w,r) }
gru seq
    g (float[n,3,4] x, float[2,15,4] w, float[2,15,5] r, float[2,30] b)
    => (float[n,2,3,5] y, float[2,3,5] h)
    { y,h=GRU<hidden_size=5,direction="bidirectional",linear_before_reset=1>(x,w,r,b) }
rnn seq then softmax
    g (float[n,2,4] x, float[1,17,4] w, float[1,17,17] r) => (float[n,1,2,17] y, float[1,2,17] h)
    { s,h=RNN<hidden_size=17>(x,w,r) y=Softmax<axis=0>(s) }
einsum sum batch
    g (float[n,2,4] x, float[n,4,3] w) => (float[2,3] y) { y=Einsum<equation="bij,bjk->ik">(x,w) }
einsum attention
    g (float[2,n,3,4] q, float[2,n,3,4] k) => (float[2,n,3,4] y)
    { s=Einsum<equation="bihd,bjhd->bhij">(q,k) p=Softmax<axis=-1>(s)
    y=Einsum<equation="bhij,bjhd->bihd">(p,k) }
einsum diagonal
    g (float[n,n] x, float[n] w) => (float y) { d=Einsum<equation="ii->i">(x)
    y=Einsum<equation="i,i->">(d,w) }
einsum outer of three
    g (float[n] x, float[3] w, float[n] z) => (float[n,n,3] y)
    { y=Einsum<equation="i,k,j->ijk">(x,w,z) }
matmulinteger along
    g (uint8[3,n] x, uint8[n,4] w, uint8 a, uint8 b) => (int32[3,4] y)
    { y=MatMulInteger(x,w,a,b) }
matmulinteger rows
    g (uint8[2,n,3] x, uint8[3,4] w, uint8 a) => (int32[2,n,4] y) { y=MatMulInteger(x,w,a) }
qlinearmatmul along
    g (uint8[2,n] x, uint8[n,3] w) => (uint8[2,3] y)
    <float s={0.5}, float u={2.0}, uint8 a={3}, uint8 b={1}>
    { y=QLinearMatMul(x,s,a,w,s,b,u,a) }
convinteger along
    g (uint8[1,2,n] x, uint8[3,2,3] w, uint8 a) => (int32[1,3,k] y)
    { y=ConvInteger<pads=[1,1],strides=[2]>(x,w,a) }
qlinearconv along
    g (uint8[1,2,n,4] x, uint8[3,2,3,1] w) => (uint8[1,3,k,4] y)
    <float s={0.5}, float u={2.0}, uint8 a={3}, uint8 b={1}, int32[3] c={1,2,3}>
    { y=QLinearConv<pads=[1,0,1,0]>(x,s,a,w,s,b,u,a,c) }
conv same of a stride
    g (float[1,1,n] x) => (float[1,1,k] y) <float[1,1,3] w={1,2,3}>
    { y=Conv<auto_pad="SAME_UPPER",strides=[2]>(x,w) }
conv same below of both
    g (float[1,1,n,n] x) => (float y) <float[8] v={1,2,3,4,5,6,7,8}, int64[4] s={1,1,4,2}>
    { w=Reshape(v,s) y=Conv<auto_pad="SAME_LOWER",strides=[3,2]>(x,w) }
conv same twice
    g (float16[1,1,n] x) => (float16 y) <float16[1,1,3] w={1,2,3}>
    { a=Conv<auto_pad="SAME_UPPER",strides=[2]>(x,w)
    y=Conv<auto_pad="SAME_UPPER",strides=[2]>(a,w) }
qlinearconv same of a stride
    g (uint8[1,2,n] x, uint8[3,2,3] w) => (uint8 y) <float s={0.5}, float u={2.0}, uint8 a={3}>
    { y=QLinearConv<auto_pad="SAME_UPPER",strides=[2]>(x,s,a,w,s,a,u,a) }
maxpool same of a stride
    g (float[1,2,n,5] x) => (float y)
    { y=MaxPool<kernel_shape=[3,3],auto_pad="SAME_UPPER",strides=[2,2]>(x) }
topk of few in a batch
    g (float[n,20] x) => (float[n,3] y, int64[n,3] z)
    { k=Constant<value=int64[1] {3}>() y,z = TopK<axis=1>(x,k) }
topk of few along both
    g (float[2,n,n] x) => (float[2,1,n] y, int64[2,1,n] z)
    { k=Constant<value=int64[1] {1}>() y,z = TopK<axis=1>(x,k) }
slice in steps
    g (float[n,4] x) => (float[k,4] y) { a=Constant<value=int64[1] {0}>() e=Constant<value=int64[1]
    {9223372036854775807}>() s=Constant<value=int64[1] {2}>() y = Slice(x,a,e,a,s) }
slice in steps from one end to the other
    g (float[2,n] x) => (float[2,k] y) { a=Constant<value=int64[1] {1}>() e=Constant<value=int64[1]
    {9223372036854775807}>() s=Constant<value=int64[1] {3}>() y = Slice(x,a,e,a,s) }
slice of the last in steps
    g (float[n,4] x) => (float[k,4] y) { a=Constant<value=int64[1] {-4}>()
    e=Constant<value=int64[1] {9223372036854775807}>() z=Constant<value=int64[1] {0}>()
    s=Constant<value=int64[1] {2}>() p=Slice(x,a,e,z,s) y=Softmax<axis=0>(p) }
layernorm of all
    g (float[n,4] x, float[n,4] w) => (float[n,4] y) { y = LayerNormalization<axis=0>(x,w) }
layernorm along
    g (float[2,3,n] x, float[1] w, float[1] b) => (float[2,3,n] y)
    { y = LayerNormalization<axis=-1>(x,w,b) }
layernorm with statistics
    g (float[2,n,4] x, float[n,4] w, float[4] b) => (float y, float m, float d)
    { y,m,d = LayerNormalization<axis=1>(x,w,b) }
half layernorm along
    g (float16[3,n] x, float16[1] w) => (float16[3,n] y) { y=LayerNormalization(x,w) }
topk along
    g (float[n,4] x) => (float[1,4] y, int64[1,4] z)
    { k=Constant<value=int64[1] {1}>() y,z = TopK<axis=0>(x,k) }
topk smallest along
    g (float[4,n] x) => (float[4,1] y, int64[4,1] z)
    { k=Constant<value=int64[1] {1}>() y,z = TopK<largest=0>(x,k) }
topk of integers along
    g (int64[4,n] x) => (int64[4,k] y, int64[4,k] z)
    { s=Shape<start=1>(x) y,z = TopK<largest=0>(x,s) }
topk of all
    g (float[n,4] x) => (float[k,4] y, int64[k,4] z) { s=Shape<end=1>(x) y,z=TopK<axis=0>(x,s) }
topk of some
    g (float[n,4] x) => (float[k,4] y, int64[k,4] z) { s=Shape<end=1>(x)
    m=Constant<value=int64[1] {3}>() k=Min(m,s) y,z=TopK<axis=0>(x,k) }
topk of some and both sizes
    g (float[n,n] x) => (float[n,k] y, int64[n,k] z) { s=Shape<end=1>(x)
    m=Constant<value=int64[1] {2}>() k=Min(m,s) y,z=TopK<axis=-1,largest=0>(x,k) }
topk then softmax
    g (float[n,4] x) => (float[k,4] y) { s=Shape<end=1>(x) m=Constant<value=int64[1] {3}>()
    k=Min(s,m) v,z=TopK<axis=0>(x,k) y=Softmax<axis=0>(v) }
half topk along
    g (float16[2,n] x) => (float16[2,1] y, int64[2,1] z)
    { k=Constant<value=int64[1] {1}>() y,z = TopK<axis=1>(x,k) }
lesser of three
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) m=Constant<value=int64[1] {3}>()
    d=Add(s,s) k=Min(d,m,s) y=ConstantOfShape<value=float[1] {2}>(k) }
next multiple
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) t=Constant<value=int64[1] {4}>()
    r=Mod(s,t) a=Sub(t,r) b=Mod(a,t) c=Add(s,b) y=ConstantOfShape<value=float[1] {2}>(c) }
exported expand
    g (float[n,4] x, float[1,4] z) => (float[n,4] y)
    { s=Shape(x) i=Constant<value=int64 {0}>() a=Gather(s,i) o=Constant<value=int64[1] {0}>()
    u=Unsqueeze(a,o) f=Constant<value=int64[1] {-1}>() t=Concat<axis=0>(u,f) r=Reshape(t,f)
    h=Shape(r) e=ConstantOfShape<value=int64[1] {1}>(h) m=Constant<value=int64 {-1}>() q=Mul(e,m)
    c=Equal(r,q) w=Where(c,e,r) p=Expand(z,w) y=Add(x,p) }
padded to a multiple
    g (float[1,1,n,3] x) => (float[1,1,k,3] y) { s=Shape<start=2,end=3>(x)
    t=Constant<value=int64[1] {4}>() r=Mod(s,t) a=Sub(t,r) b=Mod(a,t)
    z=Constant<value=int64[4] {0,0,0,0}>() o=Constant<value=int64[2] {0,0}>()
    l=Constant<value=int64[1] {0}>() p=Concat<axis=0>(z,o,b,l) y=Pad(x,p) }
padded on both sides
    g (float[2,n] x) => (float[2,k] y) <float v={7}> { s=Shape<start=1>(x)
    t=Constant<value=int64[1] {8}>() d=Sub(t,s) h=Constant<value=int64[1] {2}>() b=Div(d,h)
    e=Sub(d,b) z=Constant<value=int64[1] {0}>() p=Concat<axis=0>(z,b,z,e) q=Pad(x,p,v)
    y=Softmax<axis=1>(q) }
padded by as many
    g (float[n,4] x, float[2,3] w) => (float[2,k] y, float[a,b] c) { s=Shape<end=1>(x)
    z=Constant<value=int64[1] {0}>() p=Concat<axis=0>(z,s,z,s) y=Pad(w,p)
    q=Concat<axis=0>(s,z,z,z) c=Pad(x,q) }
padded with the last element to a multiple
    g (float[n,3] x) => (float[k,3] y) { s=Shape<end=1>(x) t=Constant<value=int64[1] {4}>()
    r=Mod(s,t) a=Sub(t,r) b=Mod(a,t) z=Constant<value=int64[1] {0}>()
    o=Constant<value=int64[1] {1}>() p=Concat<axis=0>(z,o,b,o) y=Pad<mode="edge">(x,p) }
depth to space along
    g (float[1,8,n,n] x) => (float y) { d=DepthToSpace<blocksize=2,mode="CRD">(x)
    y=ReduceMean<axes=[2],keepdims=0>(d) }
half depth to space
    g (float16[n,8,2,n] x) => (float16 y) { y=DepthToSpace<blocksize=2>(x) }
space to depth of a double
    g (float[1,2,n,2] x) => (float y)
    { c=Concat<axis=2>(x,x) y=SpaceToDepth<blocksize=2>(c) }
split by a sum
    g (float[n,4] x) => (float y) { s=Shape<end=1>(x) o=Constant<value=int64[1] {1}>() a=Add(s,o)
    w=Concat<axis=0>(a,s) z=Constant<value=float {2}>() e=Expand(z,w)
    m=Constant<value=int64[1] {-1}>() f=Reshape(e,m) b=Concat<axis=0>(a,m) y=Reshape(f,b) }
shape as data
    g (float[n,4] x) => (int64[2] y) { y = Shape(x) }
shape as data and computed
    g (float[n,4] x) => (float[n,4] y, int64[2] z) { y=Relu(x) z = Shape(y) }
size op
    g (float[n,4] x) => (int64 y) { y = Size(x) }
shape times
    g (float[n,4] x) => (float[n,4] y) { s = Shape(x) f = Cast<to=1>(s) z=Constant<value=float[2]
    {0,0}>() q=Mul(f,z) i=Constant<value=int64[1] {0}>() b = Gather(f,i) y = Mul(x,b) }
if on size
    g (float[n,4] x) => (float[n,4] y)
    { s=Shape<end=1>(x) t=Constant<value=int64[1] {2}>() c=Greater(s,t) y=If(c) <then_branch = a ()
    => (float[n,4] p) { p=Relu(x) }, else_branch = b () => (float[n,4] q) { q=Neg(x) }> }
if equal
    g (float[n,4] x) => (float[n,4] y)
    { s=Shape<end=1>(x) t=Constant<value=int64[1] {5}>() c=Equal(s,t) y=If(c) <then_branch = a () =>
    (float[n,4] p) { p=Relu(x) }, else_branch = b () => (float[n,4] q) { q=Neg(x) }> }
if rank
    g (float[n,4] x) => (float[n,4] y)
    { s=Shape(x) r=Shape(s) t=Constant<value=int64[1] {2}>() c=Equal(r,t) y=If(c) <then_branch = a
    () => (float[n,4] p) { p=Relu(x) }, else_branch = b () => (float[n,4] q) { q=Neg(x) }> }
div by count
    g (float[n,4] x) => (float[4] y) { s=ReduceSum<keepdims=0>(x,a) a=Constant<value=int64[1] {0}>()
    d=Shape<end=1>(x) f=Cast<to=1>(d) y=Div(s,f) }
eyelike
    g (float[n,4] x) => (float[n,4] y) { y=EyeLike<k=1>(x) }
eyelike of both axes
    g (float[n,n] x) => (float[n,n] y) { e=EyeLike(x) y=MatMul(e,x) }
reverse sequence over
    g (float[n,4] x) => (float[n,4] y) <int64[4] l={1,0,1,1}>
    { y=ReverseSequence<batch_axis=1,time_axis=0>(x,l) }
lp normalization over
    g (float[4,n] x) => (float[4,n] y) { y=LpNormalization<p=1>(x) }
lp normalization of squares
    g (float[n,4] x) => (float[n,4] y) { y=LpNormalization<axis=0>(x) }
stft over
    g (float[2,n,1] x) => (float y)
    { t=Constant<value=int64 {2}>() l=Constant<value=int64 {1}>() y=STFT(x,t,,l) }
slice reverse
    g (float[n,4] x) => (float[n,4] y) { a=Constant<value=int64[1] {-1}>() e=Constant<value=int64[1]
    {-9223372036854775807}>() z=Constant<value=int64[1] {0}>() y = Slice(x,a,e,z,a) }
slice reverse in steps
    g (float[n,4] x) => (float[k,4] y) { a=Constant<value=int64[1] {3}>() e=Constant<value=int64[1]
    {-9}>() z=Constant<value=int64[1] {0}>() t=Constant<value=int64[1] {-2}>() y=Slice(x,a,e,z,t) }
slice reverse of the last
    g (float[n,4] x) => (float[k,4] y) { a=Constant<value=int64[1] {-1}>() e=Constant<value=int64[1]
    {-4}>() z=Constant<value=int64[1] {0}>() y=Slice(x,a,e,z,a) }
split by a size
    g (float[n,4] x) => (float[1,4] y, float[k,4] z) { s=Shape<end=1>(x) o=Constant<value=int64[1]
    {1}>() r=Sub(s,o) t=Concat<axis=0>(o,r) y,z=Split<axis=0>(x,t) }
tile along
    g (float[n,4] x) => (float[k,4] y) { p=Constant<value=int64[2] {2,1}>() y = Tile(x,p) }
tile along and beside
    g (float[2,n] x) => (float[4,k] y) { p=Constant<value=int64[2] {2,3}>() y = Tile(x,p) }
tile of rows by sizes
    g (float[n,4] x) => (float[k,4] y)
    { s=Shape<end=1>(x) o=Constant<value=int64[1] {1}>() r=Concat<axis=0>(s,o) y=Tile(x,r) }
tile by its shape
    g (float[n,4] x) => (float[k,16] y) { s=Shape(x) y=Tile(x,s) }
compress along
    g (float[n,4] x, bool[n] c) => (float[k,4] y) { y=Compress<axis=0>(x,c) }
compress by more conditions
    g (float[4,n] x, bool[7] c) => (float[4,k] y) { y=Compress<axis=1>(x,c) }
compress by fewer conditions
    g (float[4,n] x) => (float[4,k] y) <bool[2] c={1,1}> { y=Compress<axis=1>(x,c) }
dropout mask
    g (float[n,4] x) => (float[n,4] y, bool[n,4] m) { y,m=Dropout(x) }
maxpool places of images
    g (float[n,2,5,4] x) => (float[n,2,3,3] y, int64[n,2,3,3] i)
    { y,i=MaxPool<kernel_shape=[3,2],strides=[2,1],pads=[1,0,1,0]>(x) }
"""
)

EACH_SHAPE = {
    name: (node, reason, text)
    for head, text in models(
        """
reshape states: Reshape: the node states the extent
    g (float[n,4] x) => (float[a,b] y) { s=Constant<value=int64[2] {5,-1}>() y = Reshape(x,s) }
slice reverse from the front or none: Slice: in steps of -1 from -3 on
    g (float[n,4] x) => (float[k,4] y) { a=Constant<value=int64[1] {-3}>() e=Constant<value=int64[1]
    {-9}>() z=Constant<value=int64[1] {0}>() t=Constant<value=int64[1] {-1}>() y=Slice(x,a,e,z,t) }
split along: Split: its parts are not known to be all
    g (float[n,4] x) => (float[a,4] y, float[b,4] z)
    { s=Constant<value=int64[2] {2,3}>() y,z = Split<axis=0>(x,s) }
where broadcast: Where: computed together
    g (float[n,4] x, bool[5,1] c) => (float[a,4] y) { r=Relu(x) y = Where(c,x,r) }
expand const: Expand: the node states the extent
    g (float[n,4] x) => (float[k,4] y) { s=Constant<value=int64[2] {5,4}>() y = Expand(x,s) }
squeeze none: Squeeze: it treats an axis of one
    g (float[n,1,4] x) => (float[a,b] y) { y = Squeeze(x) }
cast bool: ConstantOfShape: by more than sums
    g (float[n,4] x) => (float[k] y)
    { s=Shape<end=1>(x) b=Cast<to=9>(s) i=Cast<to=7>(b) y=ConstantOfShape(i) }
add const full: Add: computed together
    g (float[n,4] x) => (float[k,4] y) <float[5,4] c={1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4}>
    { y=Add(x,c) }
gemm bias full: Gemm: computed together
    g (float[n,4] x, float[4,3] w, float[5,3] b) => (float[n,3] y) { y=Gemm(x,w,b) }
matmul batch full: MatMul: computed together
    g (float[n,2,4] x, float[5,4,3] w) => (float[k,2,3] y) { y=MatMul(x,w) }
compress of all axes: Compress: it takes
    g (float[n,4] x, bool[4] c) => (float[k] y) { y=Compress(x,c) }
unique: Unique: it makes keys
    g (float[n] x) => (float[k] y) { y=Unique(x) }
head below zero: Slice: may have either sign
    g (float[n,4] x) => (float[k,4] y) { s=Shape<end=1>(x) o=Constant<value=int64[1] {2}>()
    m=Sub(s,o) z=Constant<value=int64[1] {0}>() y=Slice(x,z,m,z) }
prod of shape: Reshape: by more than sums
    g (float[n,4] x) => (float[k] y) { s=Shape(x) p=ReduceProd<keepdims=1>(s) y=Reshape(x,p) }
expand equal one: Expand: by more than sums
    g (float[n,4] x, float[1,1] z) => (float[n,4] y) { s=Shape(x) m=Constant<value=int64[2] {1,1}>()
    e=Equal(s,m) o=Constant<value=int64[2] {1,1}>() w=Where(e,o,s) p=Expand(z,w) y=Add(x,p) }
fallback on sized: MaxRoiPool node: no kernel is built
    g (float[n,1,4,4] x) => (float[1,1,2,2] y) <float[1,5] q={0,0,0,3,3}>
    { r=Relu(x) y=MaxRoiPool<pooled_shape=[2,2]>(r,q) }
split to sequence of pairs: SplitToSequence: is expanded at import
    g (float[n,4] x) => (float[1,4] y) { t=Constant<value=int64 {2}>()
    s=SplitToSequence<axis=0>(x,t) i=Constant<value=int64 {0}>() y=SequenceAt(s,i) }
erased from a sequence: SequenceErase: how many tensors sequence p has
    g (float[n,4] x) => (float[4] y) { s=SplitToSequence<axis=0,keepdims=0>(x) p=Identity(s)
    e=SequenceErase(p) i=Constant<value=int64 {0}>() y=SequenceAt(e,i) }
reshape inner hi: Reshape: the node states the extent
    g (float[2,n,2] x) => (float[a,b,c] y) { s=Constant<value=int64[3] {2,5,-1}>() y=Reshape(x,s) }
expand sized by hi: Expand: the node states the extent
    g (float[n,4] x, float[5,1] z) => (float[k,4] y) { s=Shape(x) y=Expand(z,s) }
range in halves: Range: a range in steps of 0.5
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) i=Constant<value=float {0}>()
    c=Cast<to=1>(s) e=Squeeze(c) o=Constant<value=float {0.5}>() y=Range(i,e,o) }
range from above: Range: may be
    g (float[n,4] x) => (int64[k] y) { s=Shape<end=1>(x) i=Constant<value=int64 {3}>()
    e=Squeeze(s) o=Constant<value=int64 {1}>() y=Range(i,e,o) }
range from far above: Range: no size
    g (float[n,4] x) => (int64[k] y) { s=Shape<end=1>(x) i=Constant<value=int64 {7}>()
    e=Squeeze(s) o=Constant<value=int64 {1}>() y=Range(i,e,o) }
resize not larger: Resize: policy not_larger depends on it
    g (float[n,2,4,4] x) => (float[n,2,4,4] y) <int64[4] s={5,2,4,4}>
    { y=Resize<keep_aspect_ratio_policy="not_larger">(x,,,s) }
quotient of a negative: ConstantOfShape: by more than sums
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) t=Constant<value=int64[1] {2}>()
    a=Sub(s,t) h=Div(a,t) y=ConstantOfShape(h) }
average pool same of a stride: AveragePool: SAME_UPPER pads its beginning by [0, 1]
    g (float[1,1,n] x) => (float[1,1,k] y)
    { y=AveragePool<kernel_shape=[3],auto_pad="SAME_UPPER",strides=[2]>(x) }
conv of infinite weights: Conv: times the zeros behind that
    g (float[1,1,n] x) => (float[1,1,k] y) <float[1,1,2] z={0,1}>
    { o=Constant<value=float {1}>() w=Div(o,z) y=Conv<pads=[0,1]>(x,w) }
conv of weights with a huge scale: Conv: times the zeros behind that
    g (float[1,1,n] x) => (float[1,1,k] y) <int8[1,1,2] q={1,2}, float s={2e36}>
    { w=DequantizeLinear(q,s) y=Conv<pads=[0,1]>(x,w) }
pad of a number: Pad: the number behind it
    g (float[n,4] x, float v) => (float[k,4] y) { p=Constant<value=int64[4] {0,0,1,0}>()
    y=Pad(x,p,v) }
pad reflects more: Pad: a run may give fewer elements
    g (float[n,4] x) => (float[k,4] y) { p=Constant<value=int64[4] {1,0,0,0}>()
    y=Pad<mode="reflect">(x,p) }
pad before by a size: Pad: in front of axis 0
    g (float[n,4] x) => (float[k,4] y) { s=Shape<end=1>(x) z=Constant<value=int64[1] {0}>()
    p=Concat<axis=0>(s,z,z,z) y=Pad<mode="edge">(x,p) }
pad of fewer than none: Pad: may be negative
    g (float[n,4] x) => (float[k,4] y) { s=Shape<end=1>(x) t=Constant<value=int64[1] {2}>()
    a=Sub(s,t) z=Constant<value=int64[1] {0}>() p=Concat<axis=0>(a,z,z,z) y=Pad(x,p) }
pad of a number by a size: Pad: the number in them
    g (float[n,4] x, float v) => (float[k,4] y) { s=Shape<end=1>(x) z=Constant<value=int64[1] {0}>()
    p=Concat<axis=0>(z,z,s,z) y=Pad(x,p,v) }
pad crops all: Pad: more elements than it has are cropped
    g (float[n,4] x) => (float[k,4] y) { p=Constant<value=int64[4] {-1,0,-1,0}>() y=Pad(x,p) }
resize by thirds: Resize: is rounded
    g (float[1,1,n,4] x) => (float[1,1,k,4] y) <float[4] s={1,1,1.3333334,1}>
    { y=Resize<coordinate_transformation_mode="asymmetric",nearest_mode="floor">(x,,s) }
thirds in floats: ConstantOfShape: by more than sums
    g (float[n,4] x) => (float[k] y) { s=Shape<end=1>(x) f=Cast<to=1>(s)
    h=Constant<value=float {3}>() m=Div(f,h) d=Floor(m) i=Cast<to=7>(d) y=ConstantOfShape(i) }
conv transpose same: ConvTranspose: its output has a stated extent
    g (float[1,1,n] x) => (float[1,1,k] y) <float[1,1,2] w={1,2}>
    { y=ConvTranspose<auto_pad="SAME_UPPER",strides=[2]>(x,w) }
"""
    ).items()
    for name, node, reason in [head.split(": ", 2)]
}
"""By name, the node, the reason, and the model."""
