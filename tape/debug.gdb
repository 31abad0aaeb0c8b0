# debug.gdb - commands that show a tape. `make gdb ARGS="train --model tiny"` loads this file; by
# hand: gdb -q -x tape/debug.gdb --args build/debug/memtape train --model tiny
# docs/gdb.md walks through them; `help memtape` lists them. The printers are in tape/debug.h.

set pagination off
set confirm off
set print inferior-events off
set print thread-events off
set unwindonsignal on
set max-value-size unlimited
# One thread, and no second start of the program (src/main.c) to have OpenMP's threads wait calmly.
set environment OMP_WAIT_POLICY passive
set environment OPENBLAS_NUM_THREADS 1

# Without Python (a gdb can be built so) these do the printing; t is the selected frame's.
define tape
  call (void)debug_tape(t)
end
define tnode
  call (void)debug_node(t, $arg0)
end
define tledger
  call (void)debug_ledger(t)
end
define tarena
  call (void)debug_arena(t)
end
define tcheck
  call (void)debug_check(t, $arg0)
end

python
import struct

import gdb

NOT_REACHED = 'not reached, something else stopped the program first\n'
FORWARD, BACKWARD, RECOMPUTE = 'PHASE_FORWARD', 'PHASE_BACKWARD', 'PHASE_RECOMPUTE'

# An op's name is a macro that notes the line it is called from: step straight into the op. And no
# lesson is in how a shape is counted or an element is found.
gdb.execute('skip -rfunction ^(tape_at|(array|tensor|tile)_.*|op_(dx|dy|room|part|start_sum)|'
            '[a-z_]+_of)$', to_string=True)
try:
    gdb.execute('set debuginfod enabled off', to_string=True)
except gdb.error:
    pass  # an older gdb asks nobody


# ---- where is the tape? ----

def tape_in(value):
    """The struct tape * that a variable is, or holds; None if it is another thing."""
    kind = value.type.strip_typedefs()
    if kind.code == gdb.TYPE_CODE_PTR:
        if int(value) == 0 or kind.target().strip_typedefs().code != gdb.TYPE_CODE_STRUCT:
            return None
        value, kind = value.dereference(), kind.target().strip_typedefs()
    name = kind.name or kind.tag
    if name == 'tape':
        return value.address
    if name == 'arena':  # its first member
        return value.address.cast(gdb.lookup_type('struct tape').pointer())
    if name == 'run':
        return value['tape'].address
    return value['run']['tape'].address if name == 'training' else None


def find_tape():
    """Looks in the selected frame, then in its callers. A null pointer if there is none."""
    try:
        frame = gdb.selected_frame()
    except gdb.error:
        raise gdb.GdbError('no tape here: run to one with `tback 7`')
    while frame is not None:
        for name in ('t', 'a', 'r'):
            try:
                found = tape_in(frame.read_var(name))
            except (ValueError, RuntimeError, gdb.error):
                continue
            if found is not None:
                return found
        frame = frame.older()
    raise gdb.GdbError('no tape here: run to one with `tback 7`')


def printed(function, *arguments):
    """Calls a printer of tape/debug.h. Breakpoints are for the program, not for the printer."""
    gdb.flush()
    enabled = [b for b in gdb.breakpoints() if b.enabled]
    for b in enabled:
        b.enabled = False
    try:
        return gdb.parse_and_eval('%s(%s)' % (function, ', '.join(arguments)))
    finally:
        for b in enabled:
            b.enabled = True


def here(tape):
    return '(struct tape *)%d' % int(tape)


def element(pointer, dtype, index):
    """An element of data or grad as a number, however it is stored."""
    address = int(pointer)
    read = gdb.selected_inferior().read_memory
    if str(dtype) == 'DTYPE_BF16':  # the upper half of a float
        return struct.unpack('f', b'\0\0' + bytes(read(address + 2 * index, 2)))[0]
    size = pointer.type.target().sizeof
    return struct.unpack('f' if size == 4 else 'd', read(address + size * index, size))[0]


def quoted(name):
    return '"%s"' % name.replace('\\', '\\\\').replace('"', '\\"')


def words(text, least, most, usage):
    found = gdb.string_to_argv(text)
    if not least <= len(found) <= most:
        raise gdb.GdbError('usage: ' + usage)
    return found


def number(text, what):
    try:
        return int(text)
    except ValueError:
        raise gdb.GdbError('%s: expected the number of %s' % (text, what))


def is_number(text):
    return text.lstrip('-').isdigit()


def named(tape, name):
    """The first node of that name (or its number, as text), or -1."""
    if is_number(name):
        return int(name)
    for i in range(int(tape['node_count'])):
        if tape['node'][i]['name'].string() == name:
            return i
    return -1


def node_here(text, usage):
    tape, name = find_tape(), words(text, 1, 1, usage)[0]
    index = named(tape, name)
    if index < 0 and not is_number(name):
        raise gdb.GdbError('no node is called %s; `tape` lists them, with their numbers' % name)
    return tape, index


# ---- running to a door ----

class Stop(gdb.Breakpoint):
    """Stops at a function if wants(frame), which may look but not call."""

    def __init__(self, function, wants):
        super().__init__(function, internal=True)
        self.silent, self.wants, self.is_hit = True, wants, False

    def stop(self):
        if not self.wants(gdb.newest_frame()):
            return False
        self.is_hit = True
        return True


def is_alive():
    return gdb.selected_inferior().pid != 0


def run_to(function, wants):
    """True at the stop; False if something else stopped the program, which is shown."""
    stop = Stop(function, wants)
    try:
        text = gdb.execute('continue' if is_alive() else 'run', to_string=True)
    finally:
        is_hit = stop.is_hit
        stop.delete()
    if is_alive():
        gdb.parse_and_eval('(int)fflush(0)')  # what the program has said comes first
    if not is_hit and is_alive():
        gdb.write(text)
    return is_hit


def phase_of(frame):
    return str(frame.read_var('phase'))


def symbol_of(pointer):
    return gdb.block_for_pc(int(pointer)).function.name


def call_of(node, phase):
    """What is to be said of this call of the node's op, if it is one of several."""
    said = []
    if phase == BACKWARD and bool(node['op']['input_last']) and bool(node['in'][0]['wants_grad']):
        if bool(node['gave_input']):
            said.append('second call: dx alone')
        elif int(node['dx'][0]) == 0:
            said.append('first call: all but dx')
    if int(node['first_sample']) > 0:
        said.append('samples from %d on' % int(node['first_sample']))
    return ' (%s)' % '; '.join(said) if said else ''


def enter_op(phase):
    """From the door before an op into the op: to its first line."""
    frame = gdb.newest_frame()
    node, tape = frame.read_var('n'), frame.read_var('t')
    gdb.write('%s of node %d, %s%s: %s\n' % (
        phase.replace('PHASE_', '').lower(), int(node['index']), node['name'].string(),
        call_of(node, phase), node['op']['formula'].string()))
    column = 'backward' if phase == BACKWARD else 'forward'
    function = node['op'][column][tape['device']]
    if int(function) == 0:  # a sum moves buffers, in grad.c
        gdb.FinishBreakpoint(frame, internal=True).silent = True
        gdb.execute('continue', to_string=True)
    else:
        run_to(symbol_of(function), lambda frame: True)
    gdb.execute('frame')


def is_above(index):
    """Whether a walk back is on its way, and has not come to the node."""
    try:
        tape = find_tape()
    except gdb.GdbError:
        return False
    phase = str(tape['arena']['ledger']['phase'])
    next_node = int(tape['node_count']) - int(tape['walked_count']) - 1
    return phase in (BACKWARD, RECOMPUTE) and next_node > index


def is_called(node, name):
    return int(node['index']) == int(name) if is_number(name) else node['name'].string() == name


def run_to_node(name, phase):
    if is_number(name) and int(name) < 0:
        raise gdb.GdbError('node %s: nodes are counted from 0' % name)
    word = phase.replace('PHASE_', '').lower()
    # Backward comes down from the last node. A name has its number when the tape is complete.
    seen = {'above': is_number(name) and is_above(int(name)), 'node': None}

    def wants(frame):
        node, tape = frame.read_var('n'), frame.read_var('t')
        if phase_of(frame) == phase and is_called(node, name):
            return True
        if phase_of(frame) != BACKWARD:
            return False
        if seen['node'] is None or seen['node'] < 0:
            seen['node'] = named(tape, name)
        index, at = seen['node'], int(node['index'])
        is_past = seen['above'] and at < index and phase == BACKWARD
        seen['above'] = at > index
        return is_past or index < 0 or index >= int(tape['node_count'])

    if not run_to('tape_break', wants):
        if is_alive():
            gdb.write('node %s: %s' % (name, NOT_REACHED))
            return
        raise gdb.GdbError('the program has ended; it came to no %s of node %s%s' % (
            word, name, '; was it started with --checkpoint?' if phase == RECOMPUTE else ''))
    frame = gdb.newest_frame()
    tape = frame.read_var('t')
    index = named(tape, name)
    if phase_of(frame) == phase and is_called(frame.read_var('n'), name):
        enter_op(phase)
    elif index < 0:
        raise gdb.GdbError('no node is called %s; `tape` lists them, with their numbers' % name)
    elif index >= int(tape['node_count']):
        raise gdb.GdbError('node %d: this tape has nodes 0 to %d' % (
            index, int(tape['node_count']) - 1))
    elif str(tape['node'][index]['op']['grad']) == 'GRAD_IS_VIEW':
        raise gdb.GdbError('node %d is a view of %s: no backward, its gradient is inside' % (
            index, tape['node'][index]['out']['base']['name'].string()))
    else:
        raise gdb.GdbError('node %d has no backward: the loss does not depend on it' % index)


# ---- the commands ----

class Tape(gdb.Command):
    """tape - all nodes: how far each is, its output, what that is kept for."""

    def invoke(self, text, from_tty):
        printed('debug_tape', here(find_tape()))


class Node(gdb.Command):
    """tnode N - node N: formula, inputs, output, what is kept and why, who asked for it."""

    def invoke(self, text, from_tty):
        tape, index = node_here(text, 'tnode N')
        printed('debug_node', here(tape), str(index))
        if 0 <= index < int(tape['node_count']):
            self.show_line(tape['node'][index])

    def show_line(self, node):
        try:
            with open(node['file'].string(), encoding='utf-8') as file:
                line = file.read().split('\n')[int(node['line']) - 1]
        except (OSError, IndexError, gdb.error):
            return
        gdb.write('  line   %s\n' % line.strip())


class Forward(gdb.Command):
    """tfwd N - run to the forward of node N: to the first line of its op."""

    def invoke(self, text, from_tty):
        run_to_node(words(text, 1, 1, 'tfwd N')[0], FORWARD)


class Backward(gdb.Command):
    """tback N - run to the backward of node N: to the first line of its op."""

    def invoke(self, text, from_tty):
        run_to_node(words(text, 1, 1, 'tback N')[0], BACKWARD)


class Replay(gdb.Command):
    """treplay N - run to the recomputation of node N inside backward (--checkpoint)."""

    def invoke(self, text, from_tty):
        run_to_node(words(text, 1, 1, 'treplay N')[0], RECOMPUTE)


class Next(gdb.Command):
    """tnext - run to the next call of an op in this phase, over replays inside backward.
That is the next node, or the second call of a linear's backward: dx alone."""

    def invoke(self, text, from_tty):
        phase = str(find_tape()['arena']['ledger']['phase'])

        def wants(frame):
            return phase_of(frame) == phase or not (
                phase == BACKWARD and phase_of(frame) == RECOMPUTE)

        if run_to('tape_break', wants):
            enter_op(phase_of(gdb.newest_frame()))
        else:
            gdb.write(NOT_REACHED if is_alive() else 'the program has ended\n')


def complete_names(text, word):
    try:
        tape = find_tape()
        names = {tape['tensor'][i]['name'].string() for i in range(int(tape['tensor_count']))}
        for i in range(int(tape['node_count'])):
            node = tape['node'][i]
            names |= {node['in'][k]['name'].string() for k in range(int(node['in_count']))}
    except (gdb.error, gdb.GdbError):
        return []
    skip = len(text) - len(word)
    return sorted(name[skip:] for name in names if name.startswith(text))


class Named(gdb.Command):
    def invoke(self, text, from_tty):
        name = words(text, 1, 1, self.usage)[0]
        printed(self.printer, here(find_tape()), quoted(name))

    def complete(self, text, word):
        return complete_names(text, word)


class Tensor(Named):
    """ttensor NAME - a tensor: what it is, what it is kept for, its values."""
    usage, printer = 'ttensor NAME', 'debug_tensor'


class Grad(Named):
    """tgrad NAME - the gradient of a tensor: norm, whose buffer it is in, values."""
    usage, printer = 'tgrad NAME', 'debug_grad'


class Why(Named):
    """twhy NAME - who keeps a tensor alive: scope, nodes whose backward reads it, loans."""
    usage, printer = 'twhy NAME', 'debug_why'


class Ledger(gdb.Command):
    """tledger - bytes by category: now, own peak, at the peak of the total."""

    def invoke(self, text, from_tty):
        printed('debug_ledger', here(find_tape()))


class Arena(gdb.Command):
    """tarena - a map of the range: low end, high end, what lies where."""

    def invoke(self, text, from_tty):
        printed('debug_arena', here(find_tape()))


class Live(gdb.Command):
    """tlive - the largest tensors that are there now."""

    def invoke(self, text, from_tty):
        printed('debug_live', here(find_tape()))


class Check(gdb.Command):
    """tcheck N - finite differences of node N's backward, now, on copies."""

    def invoke(self, text, from_tty):
        tape, index = node_here(text, 'tcheck N')
        printed('debug_check', here(tape), str(index))


class Peak(gdb.Command):
    """tpeak - run to the moment when most bytes are held, and show what is there.
A planned run reserves just its peak: the range is full then. A range that was opened larger takes
a first pass, to the end of the program, that finds the event."""

    def invoke(self, text, from_tty):
        best = {'event': -1, 'bytes': -1, 'is_full': False}

        def look(arena):
            counts = arena['ledger']['counts']
            if int(counts['total_peak']) > best['bytes']:
                best['bytes'], best['event'] = int(counts['total_peak']), int(counts['peak_event'])
                best['is_full'] = best['bytes'] == int(arena['cap_bytes'])

        def is_full(frame):
            arena = frame.read_var('a')
            look(arena)
            return int(arena['ledger']['counts']['total_now']) == int(arena['cap_bytes'])

        def is_event(frame):
            counts = frame.read_var('a')['ledger']['counts']
            return (int(counts['total_now']) == best['bytes'] and
                    int(counts['peak_event']) == best['event'])

        try:
            look(find_tape()['arena'])
        except gdb.GdbError:
            pass
        if not run_to('arena_break', is_full):
            if is_alive():
                gdb.write(NOT_REACHED)
            if is_alive() or best['event'] < 0:
                return
            gdb.write('%s, to event %d\n' % (
                'the peak is behind us: starting again' if best['is_full'] else
                'the range was never full: once more', best['event']))
            if not run_to('arena_break', is_event):
                return
        row = gdb.newest_frame().read_var('row')
        counts = gdb.newest_frame().read_var('a')['ledger']['counts']
        gdb.write('the peak, %d B, in %s: event %d, the birth of %s\n' % (
            int(counts['total_now']), str(counts['peak_phase']).replace('PHASE_', '').lower(),
            int(counts['peak_event']), row['name'].string()))
        printed('debug_live', here(find_tape()))


class Nan(gdb.Command):
    """tnan - run to the op that makes the first NaN or infinity; the program needs --trap-nan."""

    def invoke(self, text, from_tty):
        if run_to('tape_break_nan', lambda frame: True):
            tape = gdb.newest_frame().read_var('t')
            gdb.write(tape['trap']['text'].string() + '\n')
            gdb.execute('frame')
        else:
            gdb.write(NOT_REACHED if is_alive() else
                      'the program has ended; was it started with --trap-nan?\n')


class Watch(gdb.Breakpoint):
    """A stop at the door of gradients, for one element. It compares; nothing is single-stepped."""

    def __init__(self, tensor, offset, label):
        super().__init__('tape_break_grad')
        self.silent, self.label, self.offset = True, label, offset
        self.tensor, self.is_parameter = int(tensor), bool(tensor['is_persistent'])
        self.name, self.dtype = tensor['name'].string(), str(tensor['grad_dtype'])
        self.grad = +tensor['grad']
        self.grad.fetch_lazy()
        self.process, self.base = gdb.selected_inferior().pid, self.range_of(find_tape())
        is_there = int(self.grad) != 0 and not bool(
            printed('debug_is_unwritten', here(find_tape()), '(struct tensor *)%d' % self.tensor))
        self.value = self.read(self.grad) if is_there else None
        self.last_node = 0

    def range_of(self, tape):
        return int(tape['arena']['base'])

    def read(self, grad):
        return element(grad, self.dtype, self.offset)

    def is_here(self, tape, node, x):
        """Whether this is the process of the last stop. In another one all that was seen is
        forgotten; the tensor lies where it lay in the range."""
        process = gdb.selected_inferior().pid
        if process == self.process:
            return True
        owner = x['base'] if int(x['base']) != 0 else x
        moved = self.range_of(tape) - self.base
        at, was = (owner['grad'], self.grad) if self.is_parameter else (owner, self.tensor)
        if owner['name'].string() != self.name or int(at) != int(was) + moved:
            return False
        if self.is_parameter:
            self.grad = +at
            self.grad.fetch_lazy()
        self.tensor, self.base = self.tensor + moved, self.base + moved
        self.process, self.last_node, self.value = process, 0, None
        if int(node) == 0 and self.is_parameter:
            self.value = self.read(self.grad)  # just cleared
        return True

    def now(self, x):
        """The element's value if x is the tensor (or a view of it), else None."""
        if self.is_parameter:
            return self.read(self.grad)
        owner = x['base'] if int(x['base']) != 0 else x
        if int(owner) != self.tensor or int(owner['grad']) == 0:
            return None
        return self.read(owner['grad'])

    def stop(self):
        frame = gdb.newest_frame()
        node, x = frame.read_var('n'), frame.read_var('x')
        if not self.is_here(frame.read_var('t'), node, x):
            return False
        if int(node) != 0:
            if int(node['index']) > self.last_node and not self.is_parameter:
                self.value = None  # another walk back: the buffer of the last one is gone
            self.last_node = int(node['index'])
        value = self.now(x)
        was, self.value = self.value, value if value is not None else self.value
        is_same = value == was or was is not None and value != value and was != was  # NaN
        if value is None or is_same:
            return False
        gdb.write(self.line(node, x, was, value))
        return True

    def line(self, node, x, was, value):
        if int(node) == 0:
            return '%s: %s -> %.6g, by %s\n' % (
                self.label, 'none' if was is None else '%.6g' % was, value,
                gdb.newest_frame().older().name())
        who = 'node %d, %s' % (int(node['index']), node['name'].string())
        at = 'samples from %d on' % int(node['first_sample'])
        adds = any(bool(node['adds'][i]) and int(node['in'][i]) == int(x)
                   for i in range(int(node['in_count'])))
        if was is None or not adds:
            return '%s: %.6g, written by %s (%s)\n' % (self.label, value, who, at)
        return '%s: %.6g -> %.6g, %s added %.6g (%s)\n' % (
            self.label, was, value, who, value - was, at)


made = []


class WatchCommand(gdb.Command):
    """twatch NAME I J - stop whenever this element of a gradient changes; say who added what.
I counts the rows (all dimensions but the last), J the columns. `delete N` ends it."""

    def invoke(self, text, from_tty):
        name, i, j = words(text, 3, 3, 'twatch NAME I J')
        i, j = number(i, 'a row'), number(j, 'a column')
        tensor = printed('debug_find', here(find_tape()), quoted(name))
        if int(tensor) == 0:
            return
        if not bool(tensor['wants_grad']):
            raise gdb.GdbError('%s has no gradient: nobody wants one' % name)
        if int(tensor['base']) != 0:
            raise gdb.GdbError('%s is a view: watch %s, whose gradient holds its own' % (
                name, tensor['base']['name'].string()))
        offset = int(printed('debug_offset', '(struct tensor *)%d' % int(tensor), str(i), str(j)))
        if offset < 0:
            return
        made[:] = [tensor, offset, 'gradient of %s[%d,%d]' % (name, i, j)]
        gdb.execute('python made[:] = [Watch(*made)]', to_string=True)  # says where it is
        watch = made[0]
        now = 'none' if int(watch.grad) == 0 else 'born, not written yet'
        gdb.write('stop %d: %s, now %s; `continue`\n' % (
            watch.number, watch.label, now if watch.value is None else '%.6g' % watch.value))

    def complete(self, text, word):
        return complete_names(text, word)


COMMANDS = ((Tape, 'tape'), (Node, 'tnode'), (Forward, 'tfwd'), (Backward, 'tback'),
            (Replay, 'treplay'), (Next, 'tnext'), (Tensor, 'ttensor'), (Grad, 'tgrad'),
            (WatchCommand, 'twatch'), (Why, 'twhy'), (Ledger, 'tledger'), (Arena, 'tarena'),
            (Live, 'tlive'), (Peak, 'tpeak'), (Check, 'tcheck'), (Nan, 'tnan'))
for command, name in COMMANDS:
    command(name, gdb.COMMAND_USER)


class Memtape(gdb.Command):
    __doc__ = 'memtape - the commands that show a tape:\n\n%s\n\n%s' % (
        '\n'.join(command.__doc__.split('\n')[0] for command, name in COMMANDS),
        '`help tape` and so on say more; a node N is its number or its name. docs/gdb.md has '
        'sessions.')

    def invoke(self, text, from_tty):
        gdb.execute('help memtape')


Memtape('memtape', gdb.COMMAND_USER)


# ---- how values print ----

# The same text as debug_text() and debug_tensor(), but from what is read alone: gdb prints values
# in the middle of listing frames, and a call into the program there can crash gdb itself.

def readers_of(tape, x):
    """Nodes whose backward is to come and reads the bytes of x."""
    found = []
    for i in range(int(tape['node_count']) - int(tape['walked_count'])):
        node = tape['node'][i]
        needs = int(node['needs'])
        if needs == 0 or not bool(node['out']['wants_grad']):
            continue
        read = [node['in'][k] for k in range(int(node['in_count']))
                if needs & 1 << k and not (k == 0 and bool(node['gave_input']))]
        if needs & 8:
            read.append(node['out'])
        if any((int(y['base']) or int(y)) == int(x) for y in read):
            found.append(i)
    return found


def row_of(tape, address):
    """The row of the ledger whose live block is at the address, or None."""
    arena = tape['arena']
    offset = address - int(arena['base'])
    for end in range(2):
        stack = arena['stack'][end]
        for i in range(int(stack['count']) - 1, -1, -1):
            block = stack['block'][i]
            if int(block['offset_bytes']) == offset and bool(block['live']):
                return arena['ledger']['row'][int(block['row'])]
    return None


def category_of(tape, x):
    row = row_of(tape, int(x['data']))
    return 'elsewhere' if row is None else str(row['category']).replace('LEDGER_', '').lower()


def purpose_of(tape, x):
    if int(x['base']):
        return 'a view of ' + x['base']['name'].string()
    readers = readers_of(tape, x)
    nodes = 'node%s %s' % ('s' if len(readers) > 1 else '', ', '.join(map(str, readers)))
    if not int(x['data']):
        if readers:
            return 'not there, will be computed again for ' + nodes
        for i in range(int(tape['node_count'])):
            if int(tape['node'][i]['taken']) == int(x):
                return 'in a buffer that node %d took over' % i
        return 'given back'
    category = category_of(tape, x)
    if bool(x['is_persistent']):
        return category
    if readers and bool(x['is_transient']) and category != 'recomputed':
        return 'until its scope ends, then again for ' + nodes
    if readers:
        return '%s for %s' % ('recomputed' if category == 'recomputed' else 'saved', nodes)
    return 'held by its scope' if bool(x['in_scope']) else 'held by its segment'


def dims_of(x):
    return [int(x['dim'][i]) for i in range(int(x['dim_count']))]


def line_of(x):
    dims, dtype = dims_of(x), str(x['dtype']).replace('DTYPE_', '').lower()
    count = int(dtype.lstrip('bf')) // 8
    for size in dims:
        count *= size
    text = '%s %s[%s] %d B' % (x['name'].string(), dtype, ','.join(map(str, dims)), count)
    try:
        return text + ' ' + purpose_of(find_tape(), x)
    except gdb.GdbError:
        return text


def shown(count):
    """Which of so many are shown; None stands for those left out."""
    return list(range(count)) if count <= 6 else [0, 1, 2, None] + list(range(count - 3, count))


def matrix_of(x):
    dims = dims_of(x)
    owner = x['base'] if int(x['base']) else x
    if not int(owner['data']):
        return ''
    strides = [int(x['stride'][i]) for i in range(len(dims))]
    rows = 1
    for size in dims[:-1]:
        rows *= size
    lines = []
    for row in shown(rows):
        if row is None:
            lines.append('%10s' % '...')
            continue
        index, rest = [], row
        for size in reversed(dims[:-1]):
            index.insert(0, rest % size)
            rest //= size
        at = int(x['base_offset']) + sum(i * s for i, s in zip(index, strides))
        label = '[%s]' % ','.join(map(str, index)) if index else ''
        lines.append('%10s' % label + ''.join(
            '  ...' if j is None else
            ' %10.4g' % element(owner['data'], x['dtype'], at + j * strides[-1])
            for j in shown(dims[-1])))
    return '\n' + '\n'.join(lines)


class Line:
    def __init__(self, text):
        self.text = text

    def to_string(self):
        return self.text


def pretty(value):
    kind = value.type.strip_typedefs()
    is_pointer = kind.code == gdb.TYPE_CODE_PTR
    target = (kind.target() if is_pointer else kind).strip_typedefs()
    if target.code != gdb.TYPE_CODE_STRUCT or target.tag not in ('tensor', 'node'):
        return None
    if is_pointer and int(value) == 0 or not is_pointer and value.address is None:
        return None
    pointer = value if is_pointer else value.address
    try:
        if target.tag == 'node':
            return Line('node %d %s' % (int(pointer['index']), pointer['name'].string()))
        if not 1 <= int(pointer['dim_count']) <= 4:
            return None  # not made yet
        return Line(line_of(pointer) + ('' if is_pointer else matrix_of(pointer)))
    except (gdb.error, gdb.MemoryError, RuntimeError, UnicodeDecodeError):
        return None


gdb.pretty_printers.append(pretty)
end
