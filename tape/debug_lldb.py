# debug_lldb.py - what tape/debug.lldb imports: the commands of tape/debug.gdb, by lldb's own means.
# Each prints through tape/debug.h or runs to a door (tape/tape.h) and says where it is.
import ctypes
import os
import shlex
import signal
import struct
import threading

import lldb

FORWARD, BACKWARD, RECOMPUTE = 'PHASE_FORWARD', 'PHASE_BACKWARD', 'PHASE_RECOMPUTE'
NO_NODE = 'no node is called %s; `tape` lists them, with their numbers'
NOT_REACHED = 'not reached, something else stopped the program first'
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


def is_number(text):
    return text.lstrip('-').isdigit()


def named(tape, name):
    """The first node of that name (or its number, as text), or -1. tape: a struct tape *."""
    if is_number(name):
        return int(name)
    nodes, count = member(tape, 'node'), integer(member(tape, 'node_count'))
    for i in range(count):
        if text(member(at(nodes, i), 'name')) == name:
            return i
    return -1


def node_here(context, line, usage):
    address, name = find_tape(context), words(line, 1, usage)[0]
    index = named(evaluated(context, here(address)), name)
    if index < 0 and not is_number(name):
        raise Refused(NO_NODE % name)
    return address, index


def said(context, words):
    """Prints by the program, so that it comes in the order of what printers print."""
    evaluated(context, '(int)puts(%s)' % quoted(words.rstrip('\n').replace('\n', '\\n')))
    evaluated(context, '(int)fflush(0)')


# ---- running to a door ----

def is_alive(process):
    return process.IsValid() and process.GetState() == lldb.eStateStopped


class CtrlC:
    """While a command runs the program, lldb does not hear Ctrl-C: this does, and halts it. lldb's
    own handler, which Python cannot put back, is kept and put back by C."""

    def __init__(self, target):
        self.target, self.was_pressed = target, False

    def __enter__(self):
        self.handler_of = ctypes.CDLL(None).signal
        self.handler_of.restype = ctypes.c_void_p
        self.handler_of.argtypes = [ctypes.c_int, ctypes.c_void_p]
        self.reads, self.writes = os.pipe()
        os.set_blocking(self.writes, False)
        self.handler = self.handler_of(signal.SIGINT, None)
        try:
            signal.signal(signal.SIGINT, lambda number, frame: None)
            self.wakeup = signal.set_wakeup_fd(self.writes, warn_on_full_buffer=False)
        except ValueError:  # not the main thread
            self.wakeup = None
        self.listener = threading.Thread(target=self.listen)
        self.listener.start()
        return self

    def listen(self):
        while os.read(self.reads, 1) != b'\0':
            self.was_pressed = True
            self.target.GetProcess().SendAsyncInterrupt()

    def __exit__(self, *raised):
        os.write(self.writes, b'\0')
        self.listener.join()
        if self.wakeup is not None:
            signal.set_wakeup_fd(self.wakeup)
        self.handler_of(signal.SIGINT, self.handler)
        os.close(self.reads)
        os.close(self.writes)


wanted = {}  # by breakpoint: which of its frames to stop at, and whether it has


def on_door(frame, location, dictionary):
    door = wanted[location.GetBreakpoint().GetID()]
    door['is_hit'] = bool(door['wants'](frame))
    return door['is_hit'] or door['ctrl_c'].was_pressed


def run_to(debugger, function, wants):
    """The frame at the stop, or None if something else stopped or ended the program."""
    target = debugger.GetSelectedTarget()
    breakpoint = target.BreakpointCreateByName(function)
    number = breakpoint.GetID()
    ctrl_c = CtrlC(target)
    door = wanted[number] = {'wants': wants, 'is_hit': False, 'ctrl_c': ctrl_c}
    breakpoint.SetScriptCallbackFunction('debug_lldb.on_door')
    debugger.SetAsync(False)
    try:
        process = target.GetProcess()
        with ctrl_c:
            if is_alive(process):
                process.Continue()
            else:
                target.Launch(target.GetLaunchInfo(), lldb.SBError())
        process = target.GetProcess()
        if not is_alive(process) or not door['is_hit']:
            return None
        return process.GetSelectedThread().GetFrameAtIndex(0)
    finally:
        target.BreakpointDelete(number)
        del wanted[number]


def member(value, path):
    for name in path.split('.'):
        value = value.GetChildMemberWithName(name)
    return value


def integer(value):
    return value.GetValueAsSigned()


def is_true(value):
    return value.GetValueAsUnsigned() != 0


def address_in(value, path):
    return member(value, path).GetValueAsUnsigned()


def at(array, index):
    """An element of an array, or of what a pointer points to."""
    if not array.GetType().IsPointerType():
        return array.GetChildAtIndex(index)
    target, kind = array.GetTarget(), array.GetType().GetPointeeType()
    address = array.GetValueAsUnsigned() + index * kind.GetByteSize()
    return target.CreateValueFromAddress('at', lldb.SBAddress(address, target), kind)


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


def call_of(node, phase):
    """What is to be said of this call of the node's op, if it is one of several."""
    words = []
    first = at(member(node, 'in'), 0)
    if (phase == BACKWARD and member(node, 'op.input_last').GetValueAsUnsigned() and
            member(first, 'wants_grad').GetValueAsUnsigned()):
        if member(node, 'gave_input').GetValueAsUnsigned():
            words.append('second call: dx alone')
        elif at(member(node, 'dx'), 0).GetValueAsUnsigned() == 0:
            words.append('first call: all but dx')
    if integer(member(node, 'first_sample')) > 0:
        words.append('samples from %d on' % integer(member(node, 'first_sample')))
    return ' (%s)' % '; '.join(words) if words else ''


def enter_op(debugger, frame, result):
    """From the door before an op into the op: to its first line."""
    node, phase = frame.FindVariable('n'), phase_of(frame)
    result.write('%s of node %d, %s%s: %s\n' % (
        word_of(phase), integer(member(node, 'index')), text(member(node, 'name')),
        call_of(node, phase), text(member(node, 'op.formula'))))
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


def is_called(node, name):
    if is_number(name):
        return integer(member(node, 'index')) == int(name)
    return text(member(node, 'name')) == name


def run_to_node(debugger, name, phase, result):
    if is_number(name) and int(name) < 0:
        raise Refused('node %s: nodes are counted from 0' % name)
    # Backward comes down from the last node. A name has its number when the tape is complete.
    seen = {'above': is_number(name) and is_above(debugger, int(name)), 'node': None}

    def wants(frame):
        node, tape = frame.FindVariable('n'), frame.FindVariable('t')
        if phase_of(frame) == phase and is_called(node, name):
            return True
        if phase_of(frame) != BACKWARD:
            return False
        if seen['node'] is None or seen['node'] < 0:
            seen['node'] = named(tape, name)
        index, now = seen['node'], integer(member(node, 'index'))
        is_past = seen['above'] and now < index and phase == BACKWARD
        seen['above'] = now > index
        return is_past or index < 0 or index >= integer(member(tape, 'node_count'))

    frame = run_to(debugger, 'tape_break', wants)
    if frame is None:
        if is_alive(debugger.GetSelectedTarget().GetProcess()):
            raise Refused('node %s: %s' % (name, NOT_REACHED))
        raise Refused('the program has ended; it came to no %s of node %s%s' % (
            word_of(phase), name,
            '; was it started with --checkpoint?' if phase == RECOMPUTE else ''))
    tape = frame.FindVariable('t')
    index, nodes = named(tape, name), integer(member(tape, 'node_count'))
    if phase_of(frame) == phase and is_called(frame.FindVariable('n'), name):
        enter_op(debugger, frame, result)
    elif index < 0:
        raise Refused(NO_NODE % name)
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
    address, index = node_here(context, line, 'tnode N')
    printed(context, 'debug_node', here(address), str(index))
    tape = evaluated(context, here(address))
    if not 0 <= index < integer(member(tape, 'node_count')):
        return
    node = at(member(tape, 'node'), index)
    try:
        with open(text(member(node, 'file')), encoding='utf-8') as file:
            asked = file.read().split('\n')[integer(member(node, 'line')) - 1]
    except (OSError, IndexError):
        return
    said(context, '  line   ' + asked.strip())


def tfwd(debugger, line, context, result):
    """tfwd N - run to the forward of node N: to the first line of its op."""
    run_to_node(debugger, words(line, 1, 'tfwd N')[0], FORWARD, result)


def tback(debugger, line, context, result):
    """tback N - run to the backward of node N: to the first line of its op."""
    run_to_node(debugger, words(line, 1, 'tback N')[0], BACKWARD, result)


def treplay(debugger, line, context, result):
    """treplay N - run to the recomputation of node N inside backward (--checkpoint)."""
    run_to_node(debugger, words(line, 1, 'treplay N')[0], RECOMPUTE, result)


def tnext(debugger, line, context, result):
    """tnext - run to the next call of an op in this phase, over replays inside backward."""
    value = evaluated(context, '*' + here(find_tape(context)))
    phase = member(value, 'arena.ledger.phase').GetValue()

    def wants(frame):
        return phase_of(frame) == phase or not (
            phase == BACKWARD and phase_of(frame) == RECOMPUTE)

    frame = run_to(debugger, 'tape_break', wants)
    if frame is not None:
        enter_op(debugger, frame, result)
    elif is_alive(debugger.GetSelectedTarget().GetProcess()):
        raise Refused(NOT_REACHED)
    else:
        result.write('the program has ended\n')


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
    address, index = node_here(context, line, 'tcheck N')
    printed(context, 'debug_check', here(address), str(index))


def tpeak(debugger, line, context, result):
    """tpeak - run to the moment when most bytes are held, and show what is there."""
    best = {'event': -1, 'bytes': -1, 'is_full': False}

    def look(arena):
        counts, full = member(arena, 'ledger.counts'), integer(member(arena, 'cap_bytes'))
        if integer(member(counts, 'total_peak')) > best['bytes']:
            best['bytes'] = integer(member(counts, 'total_peak'))
            best['event'] = integer(member(counts, 'peak_event'))
            best['is_full'] = best['bytes'] == full
        return integer(member(counts, 'total_now')) == full

    def is_event(frame):
        counts = member(frame.FindVariable('a'), 'ledger.counts')
        return (integer(member(counts, 'total_now')) == best['bytes'] and
                integer(member(counts, 'peak_event')) == best['event'])

    try:
        look(member(evaluated(context, here(find_tape(context))), 'arena'))
    except Refused:
        pass
    frame = run_to(debugger, 'arena_break', lambda frame: look(frame.FindVariable('a')))
    if frame is None:
        if is_alive(debugger.GetSelectedTarget().GetProcess()):
            raise Refused(NOT_REACHED)
        if best['event'] < 0:
            return
        print('%s, to event %d' % ('the peak is behind us: starting again' if best['is_full'] else
                                   'the range was never full: once more', best['event']),
              flush=True)
        frame = run_to(debugger, 'arena_break', is_event)
    if frame is None:
        return
    counts = member(frame.FindVariable('a'), 'ledger.counts')
    context = lldb.SBExecutionContext(frame)
    said(context, 'the peak, %d B, in %s: event %d, the birth of %s' % (
        integer(member(counts, 'total_now')), word_of(member(counts, 'peak_phase').GetValue()),
        integer(member(counts, 'peak_event')), text(member(counts, 'peak_name'))))
    printed(context, 'debug_live', here(find_tape(context)))


def tnan(debugger, line, context, result):
    """tnan - run to the op that makes the first NaN or infinity; the program needs --trap-nan."""
    frame = run_to(debugger, 'tape_break_nan', lambda frame: True)
    if frame is None:
        raise Refused(NOT_REACHED if is_alive(debugger.GetSelectedTarget().GetProcess()) else
                      'the program has ended; was it started with --trap-nan?')
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


def is_watched_here(watch, frame, node, x):
    """Whether this is the process of the last stop. In another one all that was seen is forgotten;
    the tensor lies where it lay in the range."""
    process = frame.GetThread().GetProcess()
    if process.GetUniqueID() == watch['process']:
        return True
    base = member(x, 'base')
    owner = base if base.GetValueAsUnsigned() else x
    where = member(frame.FindVariable('t'), 'arena.base').GetValueAsUnsigned()
    moved = where - watch['base']
    if watch['is_parameter']:
        at, was = member(owner, 'grad').GetValueAsUnsigned(), watch['grad']
    else:
        at, was = owner.GetValueAsUnsigned(), watch['tensor']
    if text(member(owner, 'name')) != watch['name'] or at != was + moved:
        return False
    for key in ('address', 'grad', 'tensor', 'base'):
        watch[key] += moved
    watch.update(process=process.GetUniqueID(), last_node=0, value=None)
    if node.GetValueAsUnsigned() == 0 and watch['is_parameter']:  # just cleared
        watch['value'] = value_at(process.GetTarget(), watch['address'], watch['bytes'])
    return True


def on_gradient(frame, location, dictionary):
    """At the door of gradients: stops if the watched element has changed, and says by whom."""
    watch = watches[location.GetBreakpoint().GetID()]
    target = frame.GetThread().GetProcess().GetTarget()
    node, x = frame.FindVariable('n'), frame.FindVariable('x')
    if not is_watched_here(watch, frame, node, x):
        return False
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
    if value == was or was is not None and value != value and was != was:  # NaN
        return False
    if node.GetValueAsUnsigned() == 0:
        line = '%s -> %.6g, by %s' % ('none' if was is None else '%.6g' % was, value,
                                      frame.GetThread().GetFrameAtIndex(1).GetFunctionName())
    else:
        who = 'node %d, %s' % (integer(member(node, 'index')), text(member(node, 'name')))
        samples = 'samples from %d on' % integer(member(node, 'first_sample'))
        adds = any(is_true(at(member(node, 'adds'), i)) and
                   at(member(node, 'in'), i).GetValueAsUnsigned() == x.GetValueAsUnsigned()
                   for i in range(integer(member(node, 'in_count'))))
        if was is None or not adds:
            line = '%.6g, written by %s (%s)' % (value, who, samples)
        else:
            line = '%.6g -> %.6g, %s added %.6g (%s)' % (was, value, who, value - was, samples)
    print('gradient of %s: %s' % (watch['label'], line), flush=True)
    return True


def twatch(debugger, line, context, result):
    """twatch NAME I J - stop whenever this element of a gradient changes; say who added what.
    I counts the rows (all dimensions but the last), J the columns."""
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
             'name': text(member(tensor, 'name')), 'grad': grad.GetValueAsUnsigned(),
             'process': context.GetProcess().GetUniqueID(),
             'base': member(evaluated(context, here(find_tape(context))),
                            'arena.base').GetValueAsUnsigned()}
    is_there = grad.GetValueAsUnsigned() and not printed(
        context, 'debug_is_unwritten', here(find_tape(context)),
        '(struct tensor *)%d' % tensor.GetValueAsUnsigned()).GetValueAsUnsigned()
    watch['value'] = value_at(target, address, size) if is_there else None
    door = target.BreakpointCreateByName('tape_break_grad')
    watches[door.GetID()] = watch
    door.SetScriptCallbackFunction('debug_lldb.on_gradient')
    now = 'born, not written yet' if watch['grad'] else 'none'
    result.write('stop %d: gradient of %s, now %s; `continue`\n' % (
        door.GetID(), watch['label'],
        now if watch['value'] is None else '%.6g' % watch['value']))


COMMANDS = (tape, tnode, tfwd, tback, treplay, tnext, ttensor, tgrad, twatch, twhy, tledger, tarena,
            tlive, tpeak, tcheck, tnan)


def memtape(debugger, line, context, result):
    result.write(memtape.__doc__ + '\n')


memtape.__doc__ = 'memtape - the commands that show a tape:\n\n%s\n\n%s' % (
    '\n'.join(command.__doc__.split('\n')[0] for command in COMMANDS),
    '`help tape` and so on say more; a node N is its number or its name. docs/gdb.md has sessions.')


def guarded(command):
    def invoke(debugger, line, context, result, dictionary):
        try:
            command(debugger, line, context, result)
        except Refused as refused:
            result.SetError(str(refused))
    invoke.__doc__ = command.__doc__
    return invoke


# What debug_text() says, but from what is read alone: lldb prints values while it lists frames,
# and must not call into the program there.

def readers_of(tape, x):
    """Nodes whose backward is to come and reads the bytes of x, the address of a tensor."""
    found, nodes = [], member(tape, 'node')
    for i in range(integer(member(tape, 'node_count')) - integer(member(tape, 'walked_count'))):
        node = at(nodes, i)
        needs = integer(member(node, 'needs'))
        if needs == 0 or not is_true(member(node, 'out.wants_grad')):
            continue
        read = [at(member(node, 'in'), k) for k in range(integer(member(node, 'in_count')))
                if needs & 1 << k and not (k == 0 and is_true(member(node, 'gave_input')))]
        if needs & 8:
            read.append(member(node, 'out'))
        if any((address_in(y, 'base') or y.GetValueAsUnsigned()) == x for y in read):
            found.append(i)
    return found


def category_of(tape, address):
    """What the ledger says of the live block at the address."""
    offset = address - address_in(tape, 'arena.base')
    for end in range(2):
        stack = at(member(tape, 'arena.stack'), end)
        for i in range(integer(member(stack, 'count')) - 1, -1, -1):
            block = at(member(stack, 'block'), i)
            if integer(member(block, 'offset_bytes')) == offset and is_true(member(block, 'live')):
                row = at(member(tape, 'arena.ledger.row'), integer(member(block, 'row')))
                return member(row, 'category').GetValue().replace('LEDGER_', '').lower()
    return 'elsewhere'


def purpose_of(tape, x):
    here, data = x.GetLoadAddress(), address_in(x, 'data')
    if address_in(x, 'base'):
        return 'a view of ' + text(member(x, 'base.name'))
    readers = readers_of(tape, here)
    nodes = 'node%s %s' % ('s' if len(readers) > 1 else '', ', '.join(map(str, readers)))
    if not data:
        if readers:
            return 'not there, will be computed again for ' + nodes
        for i in range(integer(member(tape, 'node_count'))):
            if address_in(at(member(tape, 'node'), i), 'taken') == here:
                return 'in a buffer that node %d took over' % i
        return 'given back'
    category = category_of(tape, data)
    if is_true(member(x, 'is_persistent')):
        return category
    if readers and is_true(member(x, 'is_transient')) and category != 'recomputed':
        return 'until its scope ends, then again for ' + nodes
    if readers:
        return '%s for %s' % ('recomputed' if category == 'recomputed' else 'saved', nodes)
    return 'held by its scope' if is_true(member(x, 'in_scope')) else 'held by its segment'


def tape_at(target, address):
    kind = target.FindFirstType('tape')
    return target.CreateValueFromAddress('tape', lldb.SBAddress(address, target), kind)


def tensor_summary(value, dictionary):
    """As debug_text() has it: "h.0.attn.c_attn f32[2,32,96] 24576 B saved for node 3"."""
    if value.GetType().IsPointerType():
        value = value.Dereference()
    value = value.GetNonSyntheticValue()
    if not 1 <= integer(member(value, 'dim_count')) <= 4:
        return ''  # not made yet
    dims = [integer(member(value, 'dim').GetChildAtIndex(i))
            for i in range(integer(member(value, 'dim_count')))]
    dtype = (member(value, 'dtype').GetValue() or '').replace('DTYPE_', '').lower()
    if dtype == 'real':
        dtype = 'f%d' % (8 * member(value, 'data').GetType().GetPointeeType().GetByteSize())
    count = int(dtype.lstrip('bf') or 0) // 8
    for size in dims:
        count *= size
    line = '%s %s[%s] %d B' % (text(member(value, 'name')), dtype, ','.join(map(str, dims)), count)
    target = value.GetTarget()
    thread = target.GetProcess().GetSelectedThread()
    try:
        context = lldb.SBExecutionContext(value.GetFrame() if value.GetFrame().IsValid()
                                          else thread.GetSelectedFrame())
        return line + ' ' + purpose_of(tape_at(target, find_tape(context)), value)
    except Refused:
        return line


def node_summary(value, dictionary):
    return 'node %d %s' % (integer(member(value, 'index')), text(member(value, 'name')))


def __lldb_init_module(debugger, dictionary):
    for command in COMMANDS + (memtape,):
        name = command.__name__
        globals()['run_' + name] = guarded(command)
        if debugger.GetCommandInterpreter().CommandExists(name):
            debugger.HandleCommand('command delete ' + name)
        debugger.HandleCommand('command script add -f debug_lldb.run_%s %s' % (name, name))
    for name in ('tensor', 'node'):
        debugger.HandleCommand('type summary add -F debug_lldb.%s_summary "%s"' % (name, name))
