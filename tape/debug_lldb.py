# debug_lldb.py - what tape/debug.lldb imports: the commands of tape/debug.gdb, by lldb's own means.
# Each prints through tape/debug.h or runs to a door (tape/tape.h) and says where it is.
import shlex
import struct

import lldb

FORWARD, BACKWARD, RECOMPUTE = 'PHASE_FORWARD', 'PHASE_BACKWARD', 'PHASE_RECOMPUTE'
NO_TAPE = 'no tape here: run to one with `tback 7`'


class Refused(Exception):
    pass


# ---- where is the tape? ----

def tape_in(value):
    """The address of the struct tape that a variable is, or points to, or holds; 0 if none."""
    kind = value.GetType()
    if kind.IsPointerType():
        if value.GetValueAsUnsigned() == 0:
            return 0
        value, kind = value.Dereference(), kind.GetPointeeType()
    name = kind.GetUnqualifiedType().GetName().replace('struct ', '')
    if name == 'tape' or name == 'arena':  # an arena is a tape's first member
        return value.GetLoadAddress()
    if name == 'run':
        return value.GetChildMemberWithName('tape').GetLoadAddress()
    if name == 'training':
        return tape_in(value.GetChildMemberWithName('run'))
    return 0


def find_tape(context):
    """Looks in the selected frame, then in its callers."""
    thread = context.GetThread()
    frame = context.GetFrame()
    if not frame.IsValid():
        raise Refused(NO_TAPE)
    for i in range(frame.GetFrameID(), thread.GetNumFrames()):
        for name in ('t', 'a', 'r'):
            found = thread.GetFrameAtIndex(i).FindVariable(name)
            address = tape_in(found) if found.IsValid() else 0
            if address:
                return address
    raise Refused(NO_TAPE)


def evaluated(context, expression):
    options = lldb.SBExpressionOptions()
    options.SetIgnoreBreakpoints(True)
    options.SetTimeoutInMicroSeconds(0)  # tcheck takes a while: none
    options.SetTryAllThreads(False)
    value = context.GetFrame().EvaluateExpression(expression, options)
    if value.GetError().Fail() and value.GetError().GetError() != 0x1001:  # that: no result, void
        raise Refused(value.GetError().GetCString())
    return value


def printed(context, function, *arguments):
    return evaluated(context, '%s(%s)' % (function, ', '.join(arguments)))


def here(address):
    return '(struct tape *)%d' % address


def quoted(name):
    return '"%s"' % name.replace('\\', '\\\\').replace('"', '\\"')


def words(text, count, usage):
    found = shlex.split(text)
    if len(found) != count:
        raise Refused('usage: ' + usage)
    return found


def number(text, what):
    try:
        return int(text)
    except ValueError:
        raise Refused('%s: expected the number of %s' % (text, what))


# ---- running to a door ----

def is_alive(process):
    return process.IsValid() and process.GetState() == lldb.eStateStopped


def go_on(debugger):
    target = debugger.GetSelectedTarget()
    process = target.GetProcess()
    debugger.SetAsync(False)
    if is_alive(process):
        process.Continue()
    else:
        target.Launch(target.GetLaunchInfo(), lldb.SBError())
    return target.GetProcess()


def run_to(debugger, function, wants):
    """The frame at the stop, or None if something else stopped or ended the program."""
    target = debugger.GetSelectedTarget()
    door = target.BreakpointCreateByName(function)
    try:
        while True:
            process = go_on(debugger)
            if not is_alive(process):
                return None
            thread = process.GetSelectedThread()
            if (thread.GetStopReason() != lldb.eStopReasonBreakpoint or
                    thread.GetStopReasonDataAtIndex(0) != door.GetID()):
                return None
            if wants(thread.GetFrameAtIndex(0)):
                return thread.GetFrameAtIndex(0)
    finally:
        target.BreakpointDelete(door.GetID())


def member(value, path):
    for name in path.split('.'):
        value = value.GetChildMemberWithName(name)
    return value


def integer(value):
    return value.GetValueAsSigned()


def text(value):
    return (value.GetSummary() or '""')[1:-1].split('\\0')[0]


def phase_of(frame):
    return frame.FindVariable('phase').GetValue()


def word_of(phase):
    return phase.replace('PHASE_', '').lower()


def show(frame, result):
    entry = frame.GetLineEntry()
    result.write('#0 %s at %s:%d\n' % (
        frame.GetFunctionName(), entry.GetFileSpec().GetFilename(), entry.GetLine()))
    stream = lldb.SBStream()
    target = frame.GetThread().GetProcess().GetTarget()
    target.GetDebugger().GetSourceManager().DisplaySourceLinesWithLineNumbers(
        entry.GetFileSpec(), entry.GetLine(), 0, 0, '', stream)
    result.write(stream.GetData() or '')


def enter_op(debugger, frame, result):
    """From the door before an op into the op: to its first line."""
    node, phase = frame.FindVariable('n'), phase_of(frame)
    result.write('%s of node %d, %s: %s\n' % (
        word_of(phase), integer(member(node, 'index')), text(member(node, 'name')),
        text(member(node, 'op.formula'))))
    column = member(node, 'op.backward' if phase == BACKWARD else 'op.forward')
    address = column.GetChildAtIndex(0).GetValueAsUnsigned()
    if address == 0:  # a sum moves buffers, in grad.c
        thread = frame.GetThread()
        thread.StepOut()
        show(thread.GetFrameAtIndex(0), result)
        return
    target = debugger.GetSelectedTarget()
    name = target.ResolveLoadAddress(address).GetSymbol().GetName()
    frame = run_to(debugger, name, lambda frame: True)
    if frame is not None:
        show(frame, result)


def is_above(debugger, index):
    """Whether a walk back is on its way, and has not come to the node."""
    process = debugger.GetSelectedTarget().GetProcess()
    if not is_alive(process):
        return False
    context = lldb.SBExecutionContext(process.GetSelectedThread().GetSelectedFrame())
    try:
        value = evaluated(context, '*' + here(find_tape(context)))
    except Refused:
        return False
    phase = member(value, 'arena.ledger.phase').GetValue()
    done = integer(member(value, 'walked_count'))
    return phase in (BACKWARD, RECOMPUTE) and (
        integer(member(value, 'node_count')) - done - 1 > index)


def run_to_node(debugger, index, phase, result):
    seen = {'above': is_above(debugger, index)}  # backward comes down from the last node

    def wants(frame):
        at = integer(member(frame.FindVariable('n'), 'index'))
        if phase_of(frame) == phase and at == index:
            return True
        if phase_of(frame) != BACKWARD:
            return False
        is_past = seen['above'] and at < index and phase == BACKWARD
        seen['above'] = at > index
        return is_past or index >= integer(member(frame.FindVariable('t'), 'node_count'))

    frame = run_to(debugger, 'tape_break', wants)
    if frame is None:
        if not is_alive(debugger.GetSelectedTarget().GetProcess()):
            raise Refused('the program has ended; it came to no %s of node %d' % (
                word_of(phase), index))
        return
    nodes = integer(member(frame.FindVariable('t'), 'node_count'))
    if integer(member(frame.FindVariable('n'), 'index')) == index:
        enter_op(debugger, frame, result)
    elif index >= nodes:
        raise Refused('node %d: this tape has nodes 0 to %d' % (index, nodes - 1))
    else:
        raise Refused('node %d has no backward: it is a view, or the loss does not depend on it'
                      % index)


# ---- the commands ----

def tape(debugger, line, context, result):
    """tape - all nodes: how far each is, its output, what that is kept for."""
    printed(context, 'debug_tape', here(find_tape(context)))


def tnode(debugger, line, context, result):
    """tnode N - node N: formula, inputs, output, what is kept and why, who asked for it."""
    index = number(words(line, 1, 'tnode N')[0], 'a node')
    printed(context, 'debug_node', here(find_tape(context)), str(index))


def tfwd(debugger, line, context, result):
    """tfwd N - run to the forward of node N: to the first line of its op."""
    run_to_node(debugger, number(words(line, 1, 'tfwd N')[0], 'a node'), FORWARD, result)


def tback(debugger, line, context, result):
    """tback N - run to the backward of node N: to the first line of its op."""
    run_to_node(debugger, number(words(line, 1, 'tback N')[0], 'a node'), BACKWARD, result)


def treplay(debugger, line, context, result):
    """treplay N - run to the recomputation of node N inside backward (--checkpoint)."""
    run_to_node(debugger, number(words(line, 1, 'treplay N')[0], 'a node'), RECOMPUTE, result)


def tnext(debugger, line, context, result):
    """tnext - run to the next node of this phase; replays inside backward are passed over."""
    value = evaluated(context, '*' + here(find_tape(context)))
    phase = member(value, 'arena.ledger.phase').GetValue()
    node = member(value, 'running').GetValueAsUnsigned()

    def wants(frame):
        if frame.FindVariable('n').GetValueAsUnsigned() == node and phase_of(frame) == phase:
            return False  # a linear's backward may be called twice
        return phase_of(frame) == phase or not (
            phase == BACKWARD and phase_of(frame) == RECOMPUTE)

    frame = run_to(debugger, 'tape_break', wants)
    if frame is not None:
        enter_op(debugger, frame, result)


def ttensor(debugger, line, context, result):
    """ttensor NAME - a tensor: what it is, what it is kept for, its values."""
    name = words(line, 1, 'ttensor NAME')[0]
    printed(context, 'debug_tensor', here(find_tape(context)), quoted(name))


def tgrad(debugger, line, context, result):
    """tgrad NAME - the gradient of a tensor: norm, whose buffer it is in, values."""
    name = words(line, 1, 'tgrad NAME')[0]
    printed(context, 'debug_grad', here(find_tape(context)), quoted(name))


def twhy(debugger, line, context, result):
    """twhy NAME - who keeps a tensor alive: scope, nodes whose backward reads it, loans."""
    name = words(line, 1, 'twhy NAME')[0]
    printed(context, 'debug_why', here(find_tape(context)), quoted(name))


def tledger(debugger, line, context, result):
    """tledger - bytes by category: now, own peak, at the peak of the total."""
    printed(context, 'debug_ledger', here(find_tape(context)))


def tarena(debugger, line, context, result):
    """tarena - a map of the range: low end, high end, what lies where."""
    printed(context, 'debug_arena', here(find_tape(context)))


def tlive(debugger, line, context, result):
    """tlive - the largest tensors that are there now."""
    printed(context, 'debug_live', here(find_tape(context)))


def tcheck(debugger, line, context, result):
    """tcheck N - finite differences of node N's backward, now, on copies."""
    index = number(words(line, 1, 'tcheck N')[0], 'a node')
    printed(context, 'debug_check', here(find_tape(context)), str(index))


def tpeak(debugger, line, context, result):
    """tpeak - run to the moment when most bytes are held: a planned run's range is full then."""
    frame = run_to(debugger, 'arena_break', lambda frame: (
        integer(member(frame.FindVariable('a'), 'ledger.counts.total_now')) ==
        integer(member(frame.FindVariable('a'), 'cap_bytes'))))
    if frame is None:
        raise Refused('the range was never full: it was opened larger than what was held')
    counts = member(frame.FindVariable('a'), 'ledger.counts')
    result.write('the peak, %d B, in %s: event %d, the birth of %s\n' % (
        integer(member(counts, 'total_now')), word_of(member(counts, 'peak_phase').GetValue()),
        integer(member(counts, 'peak_event')), text(member(counts, 'peak_name'))))
    context = lldb.SBExecutionContext(frame)
    printed(context, 'debug_live', here(find_tape(context)))


def tnan(debugger, line, context, result):
    """tnan - run to the op that makes the first NaN or infinity; the program needs --trap-nan."""
    frame = run_to(debugger, 'tape_break_nan', lambda frame: True)
    if frame is None:
        raise Refused('the program has ended; was it started with --trap-nan?')
    said = member(frame.FindVariable('t'), 'trap.text')
    target = debugger.GetSelectedTarget()
    result.write(target.GetProcess().ReadCStringFromMemory(
        said.GetLoadAddress(), said.GetByteSize(), lldb.SBError()) + '\n')


watches = {}  # by breakpoint: what its element was when it was last seen


def value_at(target, address, size):
    data = target.GetProcess().ReadMemory(address, size, lldb.SBError())
    if size == 2:  # bf16: the upper half of a float
        return struct.unpack('f', b'\0\0' + data)[0]
    return struct.unpack('f' if size == 4 else 'd', data)[0]


def on_gradient(frame, location, dictionary):
    """At the door of gradients: stops if the watched element has changed, and says by whom."""
    watch = watches[location.GetBreakpoint().GetID()]
    target = frame.GetThread().GetProcess().GetTarget()
    node, x = frame.FindVariable('n'), frame.FindVariable('x')
    address = watch['address']
    if node.GetValueAsUnsigned():
        index = integer(member(node, 'index'))
        if index > watch['last_node'] and not watch['is_parameter']:
            watch['value'] = None  # another walk back: the buffer of the last one is gone
        watch['last_node'] = index
    if not watch['is_parameter']:
        base = member(x, 'base')
        owner = base if base.GetValueAsUnsigned() else x
        grad = member(owner, 'grad').GetValueAsUnsigned()
        if owner.GetValueAsUnsigned() != watch['tensor'] or grad == 0:
            return False
        address = grad + watch['offset'] * watch['bytes']
    value, was = value_at(target, address, watch['bytes']), watch['value']
    watch['value'] = value
    if value == was:
        return False
    before = 'none' if was is None else '%.6g' % was
    if node.GetValueAsUnsigned() == 0:
        who = 'by ' + frame.GetThread().GetFrameAtIndex(1).GetFunctionName()
    else:
        who = 'node %d, %s added %.6g (samples from %d on)' % (
            integer(member(node, 'index')), text(member(node, 'name')), value - (was or 0),
            integer(member(node, 'first_sample')))
    print('gradient of %s: %s -> %.6g, %s' % (watch['label'], before, value, who))
    return True


def twatch(debugger, line, context, result):
    """twatch NAME I J - stop whenever this element of a gradient changes, and say who added how
    much. I counts the rows (all dimensions but the last), J the columns."""
    name, i, j = words(line, 3, 'twatch NAME I J')
    i, j = number(i, 'a row'), number(j, 'a column')
    tensor = printed(context, 'debug_find', here(find_tape(context)), quoted(name))
    if tensor.GetValueAsUnsigned() == 0:
        return
    if member(tensor, 'base').GetValueAsUnsigned() or not integer(member(tensor, 'wants_grad')):
        raise Refused('%s has no gradient of its own: a view, or nobody wants one' % name)
    offset = integer(printed(context, 'debug_offset',
                             '(struct tensor *)%d' % tensor.GetValueAsUnsigned(), str(i), str(j)))
    if offset < 0:
        return
    target = debugger.GetSelectedTarget()
    grad = member(tensor, 'grad')
    is_bf16 = member(tensor, 'grad_dtype').GetValue() == 'DTYPE_BF16'
    size = 2 if is_bf16 else grad.GetType().GetPointeeType().GetByteSize()
    address = grad.GetValueAsUnsigned() + offset * size
    watch = {'label': '%s[%d,%d]' % (name, i, j), 'last_node': 0, 'offset': offset, 'bytes': size,
             'tensor': tensor.GetValueAsUnsigned(), 'address': address,
             'is_parameter': bool(integer(member(tensor, 'is_persistent'))),
             'value': value_at(target, address, size) if grad.GetValueAsUnsigned() else None}
    door = target.BreakpointCreateByName('tape_break_grad')
    watches[door.GetID()] = watch
    door.SetScriptCallbackFunction('debug_lldb.on_gradient')
    result.write('stop %d: gradient of %s, now %s; `continue`\n' % (
        door.GetID(), watch['label'],
        'none' if watch['value'] is None else '%.6g' % watch['value']))


def guarded(command):
    def invoke(debugger, line, context, result, dictionary):
        try:
            command(debugger, line, context, result)
        except Refused as refused:
            result.SetError(str(refused))
    invoke.__doc__ = command.__doc__
    return invoke


def tensor_summary(value, dictionary):
    if value.GetType().IsPointerType():
        value = value.Dereference()
    dims = ','.join(str(integer(member(value, 'dim').GetChildAtIndex(i)))
                    for i in range(integer(member(value, 'dim_count'))))
    return '%s [%s]' % (text(member(value, 'name')), dims)


def node_summary(value, dictionary):
    return 'node %d %s' % (integer(member(value, 'index')), text(member(value, 'name')))


def __lldb_init_module(debugger, dictionary):
    for command in (tape, tnode, tfwd, tback, treplay, tnext, ttensor, tgrad, twhy, tledger,
                    tarena, tlive, tcheck, tpeak, tnan, twatch):
        name = command.__name__
        globals()['run_' + name] = guarded(command)
        if debugger.GetCommandInterpreter().CommandExists(name):
            debugger.HandleCommand('command delete ' + name)
        debugger.HandleCommand('command script add -f debug_lldb.run_%s %s' % (name, name))
    for name in ('tensor', 'node'):
        debugger.HandleCommand('type summary add -F debug_lldb.%s_summary "%s"' % (name, name))
