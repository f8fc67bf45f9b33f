"""The families of random kernels; importing this module fills `schedule_kernels.FAMILIES`."""

from collections.abc import Sequence

from support.kernels.schedule_kernels import (
    FLOATS,
    Lines,
    Sketch,
    family,
    indented,
    index_test,
    indexed,
    nest,
    placed_read,
    zero,
)

LOWEST = {"i8": -128, "u8": 0, "i16": -(2**15), "i32": -(2**31), "i64": -(2**63)}
HIGHEST = {"i8": 127, "u8": 255, "i16": 2**15 - 1, "i32": 2**31 - 1, "i64": 2**63 - 1}


def neutral(op: str, dtype: str) -> str:
    """The literal that `op` does not change anything by."""
    if dtype == "bool":
        return f"bool({op in ('*', 'min')})"
    if op == "+":
        return zero(dtype)
    if op == "*":
        return f"{dtype}(1{'.0' if dtype in FLOATS else ''})"
    if dtype in FLOATS:
        return f"{dtype}({'inf' if op == 'min' else '-inf'})"
    return f"{dtype}({(HIGHEST if op == 'min' else LOWEST)[dtype]})"


def reduce(op: str, target: str, value: str) -> str:
    return f"{target} {op}= {value}" if op in "+*" else f"reduce_{op}({target}, {value})"


def guarded(s: Sketch, names: list[str], shape: list[int], line: str, other: str) -> Lines:
    """The line as it is, under an index condition, with an else, or under a data condition."""
    kind = s.dice.weighted({"plain": 6, "if": 2, "else": 1})
    if kind == "plain":
        return [line]
    lines = [f"if {index_test(s.dice, names, shape)}:", *indented([line])]
    return lines if kind == "if" else [*lines, "else:", *indented([other])]


@family(6)
def elementwise(s: Sketch) -> None:
    shape = s.shape(s.dice.weighted({1: 4, 2: 3, 3: 1}))
    names = s.loops(*"ijk"[: len(shape)])
    dtype = s.dtype()
    loads = []
    for k in range(s.dice.weighted({1: 5, 2: 3, 3: 1})):
        kind = dtype if s.dice.chance(0.75) else s.dtype()
        same = s.dice.chance(0.65)
        indices, extents = (names, shape) if same else placed_read(s.dice, names, shape)
        loads.append((indexed(s.input(f"x{k or ''}", kind, extents), indices), kind))
    target = indexed(s.output(dtype, shape), names)
    test = index_test(s.dice, names, shape)
    value = s.value(dtype, loads, s.dice.between(1, 2), test)
    other = f"{target} = {s.value(dtype, loads, 1, test)}"
    if s.dice.chance(0.06):
        other = f"{target} = undef({dtype})"
    s.block(
        "compute",
        nest(
            list(zip(names, shape, strict=True)),
            guarded(s, names, shape, f"{target} = {value}", other),
        ),
    )


@family(5)
def reduction(s: Sketch) -> None:
    s.exact = True
    rank = s.dice.weighted({1: 2, 2: 4, 3: 1})
    shape = s.shape(rank)
    names = s.loops(*"ijk"[:rank])
    dtype = s.dtype(reduces=True)
    op = s.dice.weighted({"+": 4, "max": 2, "min": 1, "*": 1})
    kept = [k for k in range(rank) if s.dice.chance(0.5)]
    kept = kept[: rank - 1]
    name = s.input("x", dtype, shape)
    s.neutral[name] = neutral(op, dtype)
    x = indexed(name, names)
    loads = [(x, dtype)]
    if op != "*" and s.dice.chance(0.4):
        indices, extents = placed_read(s.dice, names, shape)
        loads.append((indexed(s.input("w", dtype, extents), indices), dtype))
    out_shape = [shape[k] for k in kept] or [1]
    y = s.output(dtype, out_shape)
    target = indexed(y, [names[k] for k in kept] or ["0"])
    value = (
        x
        if op == "*" or s.dice.chance(0.4)
        else s.value(dtype, loads, 1, index_test(s.dice, names, shape))
    )
    start = neutral(op, dtype)
    if s.dice.chance(0.3):
        start = f"{dtype}(-0.0)" if dtype in FLOATS and op == "+" else s.literal(dtype)
    step = [reduce(op, target, value)]
    if s.dice.chance(0.25):
        step = [f"if {index_test(s.dice, names, shape)}:", *indented(step)]
    elif s.dice.chance(0.1):
        step = [f"if data({x} != {s.literal(dtype)}):", *indented(step)]
    rest = [k for k in range(rank) if k not in kept]
    bounds = dict(zip(names, shape, strict=True))
    if s.dice.chance(0.45):
        inner = [f"{target} = {start}", *nest([(names[k], shape[k]) for k in rest], step)]
        s.block("compute", nest([(names[k], shape[k]) for k in kept], inner))
        return
    first = s.loops(*"rst"[: len(kept)])
    cells = indexed(y, first or ["0"])
    s.block(
        "init",
        nest([(v, shape[k]) for v, k in zip(first, kept, strict=True)], [f"{cells} = {start}"]),
    )
    order = names if s.dice.chance(0.6) else s.dice.shuffled(names)
    s.block("compute", nest([(v, bounds[v]) for v in order], step))
    if s.dice.chance(0.2):
        last = s.loops(*"uvq"[: len(kept)])
        cells = indexed(y, last or ["0"])
        finish = s.value(dtype, [(cells, dtype)], 1, "0 < 1")
        s.block(
            "finish",
            nest([(v, shape[k]) for v, k in zip(last, kept, strict=True)], [f"{cells} = {finish}"]),
        )


@family(1.5)
def product(s: Sketch) -> None:
    s.exact = True
    m, n, depth = (s.extent(s.dice.between(1, 6)) for _ in range(3))
    i, j, k = s.loops("i", "j", "k")
    dtype = s.dice.among(("f32", "i32", "i8", "f64", "u8"))
    a = indexed(s.input("x", dtype, (m, depth)), (i, k))
    turned = s.dice.chance(0.5)
    b = s.input("w", dtype, (n, depth) if turned else (depth, n))
    b = indexed(b, (j, k) if turned else (k, j))
    target = indexed(s.output(dtype, (m, n)), (i, j))
    loops = [(i, m), (j, n)]
    inner = nest([(k, depth)], [f"{target} += {a} * {b}"])
    s.block("compute", nest(loops, [f"{target} = {zero(dtype)}", *inner]))


def window(
    s: Sketch, axes: Sequence[tuple[str, str, int, int, int, int, int, int]]
) -> tuple[list[str], str]:
    """The indices into the input, and the border condition, empty where there is none."""
    indices, tests = [], []
    for o, k, n, _out, size, stride, dilation, pad in axes:
        at = f"{stride}*{o} + {dilation}*{k}" if (stride, dilation) != (1, 1) else f"{o} + {k}"
        indices.append(f"{at} - {pad}" if pad else at)
        if pad:
            tests += [f"{at} >= {pad}", f"{at} < {n + pad}"]
        del size
    return indices, " and ".join(tests)


def window_axis(s: Sketch, o: str, k: str) -> tuple[str, str, int, int, int, int, int, int]:
    dice = s.dice
    while True:
        n, size = dice.between(3, 16), dice.between(1, 3)
        stride, dilation = dice.weighted({1: 4, 2: 1}), dice.weighted({1: 4, 2: 1})
        pad = dice.between(0, (size - 1) * dilation) if dice.chance(0.75) else 0
        less = 2 * pad - dilation * (size - 1) - 1
        if (n + less) // stride + 1 > 0:
            n = s.extent(n)
            return o, k, n, (n + less) // stride + 1, size, stride, dilation, pad


@family(3)
def convolution(s: Sketch) -> None:
    s.exact = True
    i, k = s.loops("i", "k")
    axis = window_axis(s, i, k)
    _, _, n, out, size, *_ = axis
    dtype = s.dice.among(("f32", "i32", "i32", "f32", "i8", "f64", "i64"))
    channels = s.dice.between(1, 4) if s.dice.chance(0.3) else 0
    c = s.loops("c") if channels else []
    lead = [channels] if channels else []
    indices, test = window(s, [axis])
    x = indexed(s.input("x", dtype, (*lead, n)), (*c, *indices))
    f = indexed(s.input("w", dtype, (*lead, size)), (*c, k))
    y = s.output(dtype, (out,))
    target = indexed(y, (i,))
    step = [f"{target} += {x} * {f}"]
    if test:
        step = [f"if {test}:", *indented(step)]
    loops = [*zip(c, lead, strict=True), (k, size)]
    if s.dice.chance(0.6):
        s.block("compute", nest([(i, out)], [f"{target} = {zero(dtype)}", *nest(loops, step)]))
        return
    (r,) = s.loops("r")
    s.block("init", nest([(r, out)], [f"{y}[{r}] = {zero(dtype)}"]))
    s.block("compute", nest([(i, out), *loops], step))


@family(1.2)
def image(s: Sketch) -> None:
    """Convolution or pooling of two dimensions, small."""
    s.exact = True
    names = s.loops("i", "j", "k", "l")
    while True:
        axes = [window_axis(s, names[0], names[2]), window_axis(s, names[1], names[3])]
        if axes[0][3] * axes[1][3] * axes[0][4] * axes[1][4] <= 200:
            break
    dtype = s.dice.among(("f32", "i32", "i8"))
    op = s.dice.weighted({"+": 2, "max": 2, "min": 1})
    indices, test = window(s, axes)
    value = indexed(s.input("x", dtype, [a[2] for a in axes]), indices)
    if op == "+":
        value += " * " + indexed(s.input("w", dtype, [a[4] for a in axes]), names[2:])
    target = indexed(s.output(dtype, [a[3] for a in axes]), names[:2])
    step = [reduce(op, target, value)]
    if test:
        step = [f"if {test}:", *indented(step)]
    inner = [f"{target} = {neutral(op, dtype)}", *nest([(a[1], a[4]) for a in axes], step)]
    s.block("compute", nest([(a[0], a[3]) for a in axes], inner))


@family(1.5)
def pool(s: Sketch) -> None:
    s.exact = True
    i, k = s.loops("i", "k")
    axis = window_axis(s, i, k)
    dtype, op = s.dtype(reduces=True), s.dice.weighted({"max": 3, "min": 1, "+": 1})
    indices, test = window(s, [axis])
    x = s.input("x", dtype, (axis[2],))
    s.neutral[x] = neutral(op, dtype)
    value = indexed(x, indices)
    target = indexed(s.output(dtype, (axis[3],)), (i,))
    step = [reduce(op, target, value)]
    if test:
        step = [f"if {test}:", *indented(step)]
    inner = [f"{target} = {neutral(op, dtype)}", *nest([(k, axis[4])], step)]
    s.block("compute", nest([(i, axis[3])], inner))


@family(1.5)
def stencil(s: Sketch) -> None:
    n = s.extent(s.dice.between(4, 16))
    (i,) = s.loops("i")
    dtype = s.dtype()
    x = s.input("x", dtype, (n,))
    target = f"{s.output(dtype, (n,))}[{i}]"
    loads = [(f"{x}[{i} {d}]", dtype) for d in ("- 1", "+ 0", "+ 1")]
    inside = s.value(dtype, loads, 2, f"{i} % 2 == 0")
    border = s.literal(dtype) if s.dice.chance(0.5) else f"{x}[{i}]"
    test = f"{i} >= 1 and {i} < {n - 1}"
    if s.dice.chance(0.5):
        body = [f"{target} = select({test}, {inside}, {border})"]
    else:
        body = [f"if {test}:", *indented([f"{target} = {inside}"])]
        if s.dice.chance(0.7):
            body += ["else:", *indented([f"{target} = {border}"])]
    s.block("compute", nest([(i, n)], body))


@family(1)
def prefix(s: Sketch) -> None:
    """Each element is made of the one before: the order is part of the meaning."""
    s.exact = True
    n, m = s.extent(s.dice.between(3, 14)), s.extent(s.dice.between(1, 4))
    dtype = s.dice.among(("i32", "f32", "i8", "i64"))
    i, j = s.loops("i", "j")
    two = s.dice.chance(0.5)
    lead, loops = ([m], [(j, m)]) if two else ([], [])
    x = s.input("x", dtype, (*lead, n))
    y = s.output(dtype, (*lead, n))
    head = [v for v, _ in loops]
    at = [indexed(b, (*head, e)) for b, e in ((y, i), (y, f"{i} - 1"), (x, i))]
    first = f"{indexed(y, (*head, '0'))} = {indexed(x, (*head, '0'))}"
    body = [first, *nest([(i, f"1, {n}")], [f"{at[0]} = {at[1]} + {at[2]}"])]
    s.block("compute", nest(loops, body))


@family(1.2)
def triangle(s: Sketch) -> None:
    s.exact = True
    n = s.extent(s.dice.between(2, 8))
    i, j, r = s.loops("i", "j", "r")
    dtype = s.dtype(reduces=True)
    op = s.dice.among(("+", "max"))
    bounds = s.dice.among((f"0, {i} + 1", f"{i}, {n}", f"max(0, {i} - 2), min({n}, {i} + 3)"))
    x = s.input("x", dtype, (n, n))
    s.neutral[x] = neutral(op, dtype)
    value = indexed(x, (i, j) if s.dice.chance(0.5) else (j, i))
    y = s.output(dtype, (n,))
    s.block("init", nest([(r, n)], [f"{y}[{r}] = {neutral(op, dtype)}"]))
    s.block("compute", nest([(i, n), (j, bounds)], [reduce(op, f"{y}[{i}]", value)]))


@family(1.5)
def movement(s: Sketch) -> None:
    """Transposes, and reshapes that split or join axes."""
    dtype = s.dtype()
    kind = s.dice.among(("transpose", "flatten", "split"))
    a, b, c = (s.dice.between(1, 5) for _ in range(3))
    i, j, k = s.loops("i", "j", "k")
    if kind == "transpose":
        order = s.dice.shuffled(range(3))
        shape, names = [s.extent(n) for n in (a, b, c)], [i, j, k]
        x = indexed(s.input("x", dtype, shape), names)
        target = indexed(s.output(dtype, [shape[o] for o in order]), [names[o] for o in order])
    elif kind == "flatten":
        a = s.extent(a)
        shape, names = [a, b], [i, j]
        x = indexed(s.input("x", dtype, shape), names)
        target = indexed(s.output(dtype, [a * b]), [f"{b}*{i} + {j}"])
    else:
        a = s.extent(a)
        shape, names = [a * b], [i]
        x = indexed(s.input("x", dtype, shape), names)
        target = indexed(s.output(dtype, [a, b]), [f"{i} // {b}", f"{i} % {b}"])
    s.block("compute", nest(list(zip(names, shape, strict=True)), [f"{target} = {x}"]))


@family(2.5)
def stages(s: Sketch) -> None:
    """One stage computes what the next one reads, at the same element or another one."""
    n = s.extent(s.dice.between(2, 14))
    dtype, mid = s.dtype(), s.dtype()
    i, j = s.loops("i", "j")
    x = s.input("x", mid, (n,))
    target = f"{s.output(dtype, (n,))}[{j}]"
    t = "t" if not any(p.startswith("t:") for p in s.params) else "t2"
    s.lines.append(f"{t} = alloc({mid}[{int(n)}])")
    first = s.value(mid, [(f"{x}[{i}]", mid)], 1, f"{i} % 2 == 0")
    s.block("first", nest([(i, n)], [f"{t}[{i}] = {first}"]))
    at = s.dice.weighted({j: 4, f"{n - 1} - {j}": 1, f"max({j} - 1, 0)": 1, f"{j} // 2": 1})
    loads = [(f"{t}[{at}]", mid), (f"{x}[{j}]", mid)]
    # The second load is there for the test of a data condition, so that types always fit.
    value = (
        s.value(dtype, loads, 1, f"{j} < {n // 2}")
        if mid == dtype
        else ((s.castable(dtype, loads) and f"cast({dtype}, {loads[0][0]})") or s.literal(dtype))
    )
    s.block("second", nest([(j, n)], [f"{target} = {value}"]))


@family(1.2)
def assuming(s: Sketch) -> None:
    """A sum over a padded box of whose padding something is assumed."""
    s.exact = True
    n, rows = s.extent(s.dice.between(5, 15)), 4
    dtype = s.dice.among(("f32", "i32", "i8", "f64"))
    a, b, i, j = s.loops("a", "b", "i", "j")
    x, y = s.input("x", dtype, (rows, 4)), s.output(dtype, (1,))
    n = min(n, 4 * rows)
    op = s.dice.weighted({"+": 3, "max": 1})
    good = s.dice.chance(0.7)
    pad = neutral(op, dtype) if good and op == "+" else zero(dtype)
    s.limits[x] = f"padded {n} {pad.split('(')[1][:-1]}"
    s.lines += nest(
        [(a, rows), (b, 4)], [f"assume(unless(4*{a} + {b} < {n}), {x}[{a}, {b}] == {pad})"]
    )
    s.block("init", [f"{y}[0] = {neutral(op, dtype)}"])
    step = [f"if 4*{i} + {j} < {n}:", *indented([reduce(op, f"{y}[0]", f"{x}[{i}, {j}]")])]
    s.block("compute", nest([(i, rows), (j, 4)], step))


@family(1)
def claims(s: Sketch) -> None:
    """An elementwise kernel of whose input a range is assumed, with claims as simplifiers see."""
    n = s.extent(s.dice.between(2, 14))
    dtype = s.dice.among(("f32", "i32", "i8", "i64", "f64"))
    a, i = s.loops("a", "i")
    x, y = s.input("x", dtype, (n,)), s.output(dtype, (n,))
    point = ".0" if dtype in FLOATS else ""
    claim, limit = s.dice.among(
        (
            (f"{x}[{a}] >= {dtype}(0{point})", "nonnegative"),
            (f"abs({x}[{a}]) <= {dtype}(5{point})", "small"),
        )
    )
    s.limits[x] = limit
    s.lines += nest([(a, n)], [f"assume(unless({a} < 0), {claim})"])
    value = s.value(dtype, [(f"{x}[{i}]", dtype)], 2, f"{i} % 2 == 0")
    s.block(
        "compute",
        nest([(i, n)], guarded(s, [i], [n], f"{y}[{i}] = {value}", f"{y}[{i}] = undef({dtype})")),
    )


@family(2)
def scatter(s: Sketch) -> None:
    """Several iterations write one element, so that the last one must stay the last."""
    s.exact = True
    a, b = s.extent(s.dice.between(2, 9)), s.extent(s.dice.between(2, 9))
    i, j = s.loops("i", "j", pair=0.8)
    dtype = s.dice.among(("i32", "f32", "i8", "i64"))
    c, d = s.dice.between(1, 3), s.dice.between(0, 2)
    text, extent = s.dice.among(
        (
            (f"{i} + {j}", a + b - 1),
            (f"{c}*{i} + {c + 1}*{j}", c * (a - 1) + (c + 1) * (b - 1) + 1),
            (f"({c}*{i} + {j} + {d}) % {c + 3}", c + 3),
            (f"{i} - {j} + {b - 1}", a + b - 1),
            (f"({i} + {d}) // 2", (a + d) // 2 + 1),
            (f"max({i} - {j}, 0)", a),
        )
    )
    x = indexed(s.input("x", dtype, (a, b)), (i, j))
    y = s.output(dtype, (extent,))
    (r,) = s.loops("r")
    s.block("init", nest([(r, extent)], [f"{y}[{r}] = {zero(dtype)}"]))
    target = f"{y}[{text}]"
    line = f"{target} = {x}" if s.dice.chance(0.75) else reduce("+", target, x)
    body = guarded(s, [i, j], [a, b], line, f"{y}[0] = {x}")
    s.block("compute", nest([(i, a), (j, b)], body))


@family(2)
def skewed(s: Sketch) -> None:
    """An element is made of another one that was written some iterations before, or will be."""
    s.exact = True
    a, b = s.extent(s.dice.between(3, 10)), s.extent(s.dice.between(3, 10))
    i, j, p, q = s.loops("i", "j", "p", "q", pair=0.8)
    dtype = s.dice.among(("i32", "f32", "i8", "i64"))
    x = s.input("x", dtype, (a, b))
    y = s.output(dtype, (a, b))
    first = indexed(x, (p, q)) if s.dice.chance(0.5) else zero(dtype)
    s.block("init", nest([(p, a), (q, b)], [f"{indexed(y, (p, q))} = {first}"]))
    down, right = s.dice.between(-1, 1), s.dice.between(-1, 1)
    other = indexed(y, (f"{i} + {down}", f"{j} + {right}"))
    line = f"{indexed(y, (i, j))} = {other} + {indexed(x, (i, j))}"
    s.block("compute", nest([(i, f"1, {a - 1}"), (j, f"1, {b - 1}")], [line]))


@family(0)
def updates(s: Sketch) -> None:
    """One or two nests that change a part of what the caller gives, once or several times.

    It is drawn by its name alone, so that the other seeds stay what they are.
    """
    s.exact = True
    shape = s.shape(s.dice.between(1, 2))
    dtype = s.dice.among(("i32", "f32", "i8", "i64"))
    y = s.output(dtype, shape, role="inout")
    for k in range(s.dice.between(1, 2)):
        names, (again,) = s.loops(*"ij"[: len(shape)]), s.loops("r")
        indices, extents = placed_read(s.dice, names, shape)
        x = indexed(s.input(f"x{k}", dtype, extents), indices)
        places = [
            f"{n - 1} - {name}" if s.dice.chance(0.2) else name
            for n, name in zip(shape, names, strict=True)
        ]
        target = indexed(y, places)
        lines = [f"{target} = {target} + {x}", f"{target} = {x}", reduce("+", target, x)]
        line = s.dice.among((*lines, reduce("max", target, x)))
        stops = [s.dice.between(1, n) if s.dice.chance(0.3) else n for n in shape]
        loops: list[tuple[str, int]] = list(zip(names, stops, strict=True))
        if s.dice.chance(0.4):
            loops.insert(s.dice.between(0, len(loops)), (again, s.dice.between(1, 3)))
        s.block(f"update{k}", nest(loops, guarded(s, names, shape, line, lines[0])))
