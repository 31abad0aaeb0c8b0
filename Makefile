# One list of sources, several builds. `make help` lists what there is to ask for.

# Options. Objects of different options live in different folders; a change of anything else that
# reaches a command line (CC, CFLAGS, LDFLAGS) rebuilds.
BLAS   = openblas# openblas | builtin: no BLAS library at all | loops: three plain ones, slow
OMP    = 1#        0: one thread, no OpenMP
STATIC = 0#        1: a program without shared libraries
BUILD  = release#  what install, examples and bench use: release | portable (runs on older machines)
V      =#          1: print whole commands
WERROR = -Werror#  in the builds that the tests use; empty for a compiler that warns about more
JOBS  := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

PREFIX  = /usr/local
DESTDIR =

RUN_ARGS        = train --model nano --steps 1000 --warmup 50 --eval-every 250 --out runs/nano
BENCH_ARGS      = bench

PKG_CONFIG = pkg-config

# ---- what is built ----

BACKENDS := openblas builtin loops
ifeq ($(filter $(BLAS),$(BACKENDS)),)
$(error BLAS=$(BLAS): expected one of: $(BACKENDS))
endif

# A debugger steps through plain loops, unless BLAS= was given.
BLAS_GIVEN  = $(if $(filter command environment,$(firstword $(origin BLAS))),$(BLAS))
BLAS_debug  = loops
blas_of     = $(or $(BLAS_GIVEN),$(BLAS_$(1)),$(BLAS))

ALL_LIB_C := $(sort $(wildcard tape/*.c tape/ops/*.c tape/cpu/*.c nn/*.c data/*.c))
lib_c_of   = $(filter-out $(patsubst %,tape/cpu/blas_%.c,$(filter-out \
             $(call blas_of,$(1)),$(BACKENDS))),$(ALL_LIB_C))
SRC_C     := $(sort $(wildcard src/*.c))
TEST_C    := $(sort $(wildcard tests/test_*.c))
EXAMPLE_C := $(sort $(wildcard examples/*.c))
HEADERS   := $(filter-out %_int.h,$(wildcard tape/*.h tape/ops/*.h nn/*.h data/*.h))
TEST_SH   := $(sort $(wildcard tests/test_*.sh))

comma := ,
empty :=
space := $(empty) $(empty)

# ---- flags ----

# -ffp-contract=off: a compiler that fuses a*b + c in one loop and not in its remainder would round
# the same element differently when a loop is split in another place; what is to be fused says so.
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wvla \
        -Wstrict-prototypes -Wmissing-prototypes
BASE := -std=c11 -I. $(WARN) -ffp-contract=off -fno-math-errno -fno-trapping-math -MMD -MP
LAWS := -DTAPE_POISON -DTAPE_LAW

FLAGS_release  = -O3 $(NATIVE) -g $(OMP_CFLAGS)
FLAGS_portable = -O3 -g $(OMP_CFLAGS)
# Never shipped: what training would cost without the exact order of sums (make bench-exact).
FLAGS_onegemm  = $(FLAGS_release) -DTAPE_ONE_GEMM
FLAGS_debug    = -O0 -g3 -fno-inline -fno-omit-frame-pointer $(LAWS) -Wno-unknown-pragmas
FLAGS_check    = -O2 -g $(OMP_CFLAGS) $(LAWS) $(WERROR)
FLAGS_f64      = -O2 -g $(OMP_CFLAGS) -DTAPE_F64 $(LAWS) $(WERROR)
FLAGS_asan     = -O1 -g -fno-omit-frame-pointer $(SANITIZE) $(LAWS) $(WERROR) -Wno-unknown-pragmas

# One thread in debug, so that a debugger sees plain loops; and in asan, for readable reports.
LINK_release  = $(OMP_LIBS) $(STATIC_LINK)
LINK_portable = $(OMP_LIBS) $(STATIC_LINK)
LINK_onegemm  = $(OMP_LIBS)
LINK_debug    =
LINK_check    = $(OMP_LIBS)
LINK_f64      = $(OMP_LIBS)
LINK_asan     = $(SANITIZE)

SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all

# ---- what this machine offers: asked once, and only when something is compiled ----

once     = $(eval $(1) := $(2))$($(1))
compiles = echo 'int main(void) { return 0; }' | $(CC) -Werror $(1) -x c - -o /dev/null 2>/dev/null
first_ok = $(shell for f in $(1); do if $(call compiles,$$f); then echo " $$f"; break; fi; done)

NATIVE = $(call once,NATIVE,$(call first_ok,-march=native -mcpu=native))

# Apple's compiler has OpenMP, but neither its library nor the usual spelling of the flag.
brew         = $(shell brew --prefix $(1) 2>/dev/null)
OMP_FLAG     = $(call once,OMP_FLAG,$(if $(filter 0,$(OMP)),,$(or $(call omp_usual),$(call \
               omp_brew),$(info memtape: $(CC) cannot link OpenMP here; building for one thread))))
omp_test     = echo '\#include <omp.h>' | $(CC) $(1) -E -x c - >/dev/null 2>&1 && \
               $(call compiles,$(1) $(filter -static,$(STATIC_LINK)))
omp_usual    = $(shell $(call omp_test,-fopenmp) && echo -fopenmp)
OMP_BREW_DIR = $(call once,OMP_BREW_DIR,$(call brew,libomp))
omp_brew     = $(if $(OMP_BREW_DIR),$(shell $(call omp_test,-Xpreprocessor -fopenmp \
               -I$(OMP_BREW_DIR)/include) && echo -Xpreprocessor -fopenmp -I$(OMP_BREW_DIR)/include))
OMP_CFLAGS   = $(or $(OMP_FLAG),-Wno-unknown-pragmas)
OMP_LIBS     = $(if $(filter -Xpreprocessor,$(OMP_FLAG)),-L$(OMP_BREW_DIR)/lib -lomp,$(OMP_FLAG))

BREW_BLAS   = $(call once,BREW_BLAS,$(call brew,openblas))
BLAS_CFLAGS_openblas = $(call once,BLAS_CFLAGS_openblas,$(patsubst -I%,-isystem %,$(shell \
    $(PKG_CONFIG) --cflags openblas 2>/dev/null || echo $(BREW_BLAS:%=-I%/include))))
BLAS_LIBS_openblas   = $(call once,BLAS_LIBS_openblas,$(shell \
    $(PKG_CONFIG) --libs openblas 2>/dev/null || echo $(BREW_BLAS:%=-L%/lib) -lopenblas))
# Only an OpenBLAS made with BUILD_BFLOAT16 has it, but every one's header declares it. (A linker
# without warnings, as STATIC_LINK asks for, does not mind what is missing.)
BLAS_BF16_openblas   = $(call once,BLAS_BF16_openblas,$(shell echo \
    'void (*f)(void) = (void (*)(void))cblas_sbgemm; int main(void) { return f == 0; }' | $(CC) \
    $(BLAS_CFLAGS_openblas) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(filter -static,$(STATIC_LINK)) \
    -include cblas.h -x c - -x none $(call libs_of,release) -o /dev/null 2>/dev/null && \
    echo -DTAPE_SBGEMM))
blas_cflags_of = $(BLAS_CFLAGS_$(call blas_of,$(1))) $(BLAS_BF16_$(call blas_of,$(1)))
blas_libs_of   = $(BLAS_LIBS_$(call blas_of,$(1)))

CMOCKA_CFLAGS = $(call once,CMOCKA_CFLAGS,$(patsubst -I%,-isystem %,$(shell \
    $(PKG_CONFIG) --cflags cmocka 2>/dev/null)))
CMOCKA_LIBS   = $(call once,CMOCKA_LIBS,$(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null || \
    echo -lcmocka))

# A static OpenBLAS may want Fortran's library, an older libc its threads whole. Static libgomp
# mentions dlopen (for devices that we do not use) and the linker warns of it.
STATIC_LINK   = $(if $(filter 1,$(STATIC)),-static $(STATIC_QUIET))
STATIC_LIBS   = $(if $(filter 1,$(STATIC)),$(STATIC_FORTRAN) -Wl$(comma)--whole-archive \
                -lpthread -Wl$(comma)--no-whole-archive)
STATIC_QUIET  = $(call once,STATIC_QUIET,$(call first_ok,-Wl$(comma)--no-warnings))
STATIC_FORTRAN = $(if $(call blas_libs_of,release),$(call once,STATIC_FORTRAN,$(shell \
                $(call compiles,-static -lgfortran -lquadmath) && echo -lgfortran -lquadmath)))

# test_sealed listens to who calls these, where the linker lets it (not Apple's).
WRAPPED := malloc calloc realloc mmap brk sbrk posix_memalign aligned_alloc step_gradients run_close
WRAP     = $(call once,WRAP,$(if $(shell $(call compiles,-Wl$(comma)--wrap=malloc) && echo yes),$(WRAPPED:%=-Wl$(comma)--wrap=%)))

LIBS          = $(call blas_libs_of,$(1)) $(LDLIBS) -lm
LIBS_release  = $(STATIC_LIBS)
LIBS_portable = $(STATIC_LIBS)
libs_of       = $(call LIBS,$(1)) $(LIBS_$(1))

# ---- how: the same rules for every build ----

BUILDS      := release portable debug check f64 asan onegemm
TEST_BUILDS := check f64 asan
blas         = $(addprefix -,$(filter-out $(or $(BLAS_$(1)),openblas),$(call blas_of,$(1))))
serial      := $(if $(filter 0,$(OMP)),-serial)
static      := $(if $(filter 1,$(STATIC)),-static)
folder       = build/$(1)$(blas)$(serial)$(if $(filter release portable,$(1)),$(static))

ifeq ($(filter $(BUILD),$(BUILDS)),)
$(error BUILD=$(BUILD): expected one of: $(BUILDS))
endif

Q   := $(if $(V),,@)
say  = @$(if $(V),:,echo '$(1)')
MAKEFLAGS += --no-print-directory

# $(call stamp,TEXT): a file that changes only when TEXT does.
stamp = @mkdir -p $(@D); echo '$(subst ','\'',$(1))' | cmp -s - $@ || \
        echo '$(subst ','\'',$(1))' > $@

all: deps-quiet
	+@$(SUBMAKE) programs

# $(1) build, $(2) its folder
define rules
LIB_$(1)   := $$(patsubst %.c,$(2)/%.o,$$(call lib_c_of,$(1)))
SRC_$(1)   := $$(SRC_C:%.c=$(2)/%.o)
TESTS_$(1) := $$(TEST_C:%.c=$(2)/%)
EXAMPLES_$(1) := $$(EXAMPLE_C:%.c=$(2)/%)

$(2)/flags: FORCE
	$$(call stamp,$$(CC) $$(BASE) $$(FLAGS_$(1)) $$(call blas_cflags_of,$(1)) $$(CPPFLAGS) $$(CFLAGS) \
	    $$(LDFLAGS) $$(LINK_$(1)) $$(call libs_of,$(1)))

$(2)/sources: FORCE
	$$(call stamp,$$(call lib_c_of,$(1)) $$(SRC_C))

$(2)/%.o: %.c $(2)/flags
	$$(call say,CC $$<$(if $(filter release,$(1)),, ($(1))))
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $$(BASE) $$(FLAGS_$(1)) $$(call blas_cflags_of,$(1)) \
	    $$(if $$(filter tests/%,$$<),$$(CMOCKA_CFLAGS)) $$(CPPFLAGS) $$(CFLAGS) -c $$< -o $$@

$(2)/libmemtape.a: $$(LIB_$(1)) $(2)/sources
	$$(call say,AR $$@)
	@rm -f $$@
	$$(Q)$$(AR) rcs $$@ $$(LIB_$(1))

$(2)/memtape: $$(SRC_$(1)) $(2)/libmemtape.a
	$$(call say,LD $$@)
	$$(Q)$$(CC) $$(LDFLAGS) $$(LINK_$(1)) $$^ $$(call libs_of,$(1)) -o $$@

$(2)/tests/test_%: $(2)/tests/test_%.o $$(filter-out %/src/main.o,$$(SRC_$(1))) $(2)/libmemtape.a
	$$(call say,LD $$@)
	$$(Q)$$(CC) $$(LDFLAGS) $$(LINK_$(1)) $$(if $$(filter %/test_sealed,$$@),$$(WRAP)) $$^ \
	    $$(CMOCKA_LIBS) $$(call libs_of,$(1)) -o $$@

$(2)/examples/%: $(2)/examples/%.o $(2)/libmemtape.a
	$$(call say,LD $$@)
	$$(Q)$$(CC) $$(LDFLAGS) $$(LINK_$(1)) $$^ $$(call libs_of,$(1)) -o $$@

.SECONDARY: $$(TESTS_$(1):%=%.o) $$(EXAMPLES_$(1):%=%.o)

-include $$(wildcard $$(addsuffix .d,$$(basename $$(LIB_$(1)) $$(SRC_$(1)) $$(TESTS_$(1):%=%.o) \
    $$(EXAMPLES_$(1):%=%.o))))
endef
$(foreach b,$(BUILDS),$(eval $(call rules,$(b),$(call folder,$(b)))))

# The goals that people type are makes of their own, one after the other; those run in parallel.
ifneq ($(filter-out build/% programs %-programs install-files,$(or $(MAKECMDGOALS),all)),)
.NOTPARALLEL:
endif

.DELETE_ON_ERROR:
FORCE:

# ---- what to ask for ----

# Installing comes before anything is asked of the machine, so the work is a make of its own.
SUBMAKE = $(MAKE) $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))
ASK     = CC='$(CC)' BLAS='$(ASK_BLAS)' OMP='$(OMP)' STATIC='$(STATIC)' tests/install.sh

ASK_BLAS = $(BLAS)

deps-quiet: ; @$(ASK) --check
deps:       ; @$(ASK)
deps-test:  ; @$(ASK) test

# ./memtape follows the options of the last make; it may be running while it is replaced.
programs: $(call folder,$(BUILD))/memtape $(call folder,f64)/memtape
	@cmp -s $< memtape || { cp $< build/memtape.new && mv -f build/memtape.new memtape; }

run: deps
	+@$(SUBMAKE) programs
	./memtape $(RUN_ARGS)

TEST_PROGRAMS := $(foreach b,$(TEST_BUILDS),$(TESTS_$(b)))
TEST_NEEDS    := $(TEST_PROGRAMS) $(call folder,release)/memtape $(call folder,f64)/memtape \
                 $(call folder,debug)/memtape $(call folder,debug)/examples/by_hand \
                 $(EXAMPLES_release)

test: deps-test
	+@$(SUBMAKE) test-programs
	@$(RUN_TESTS)

test-long: deps-test
	+@$(SUBMAKE) test-programs
	@MEMTAPE_LONG=1 $(RUN_TESTS)

test-programs: $(TEST_NEEDS)

# The shell tests find the programs here. The two kinds of test run side by side, two at a time.
RUN_TESTS = MEMTAPE=$(call folder,release)/memtape MEMTAPE_F64=$(call folder,f64)/memtape \
            MEMTAPE_DEBUG=$(call folder,debug)/memtape \
            MEMTAPE_EXAMPLES=$(call folder,release)/examples \
            CC='$(CC)' BLAS='$(BLAS)' OMP='$(OMP)' tests/run.sh tests/tidy.sh $(TEST_PROGRAMS) $(TEST_SH)

tidy:
	@CC='$(CC)' tests/tidy.sh

examples: deps-quiet
	+@$(SUBMAKE) example-programs
	@echo 'examples are in $(call folder,$(BUILD))/examples'

example-programs: $(EXAMPLES_$(BUILD))

bench: deps-quiet
	+@$(SUBMAKE) programs
	./memtape $(BENCH_ARGS)

bench-ways: deps-quiet
	+@$(SUBMAKE) programs
	@tests/bench_ways.sh ./memtape $(ROUNDS)

bench-exact: deps-quiet
	+@$(SUBMAKE) programs $(call folder,onegemm)/memtape
	@tests/bench_exact.sh ./memtape $(call folder,onegemm)/memtape

bench-text: deps-quiet
	$(if $(DATA),,$(error say which text: make bench-text DATA=FILE))
	+@$(SUBMAKE) programs
	@tests/bench_text.sh ./memtape "$(DATA)" $(ARGS)

debug gdb lldb gdb-page: ASK_BLAS = $(call blas_of,debug)

debug: deps-quiet
	+@$(SUBMAKE) $(call folder,debug)/memtape

# EXAMPLE=by_hand: that program of examples/ instead of memtape with ARGS. Debian's lldb does not
# find its own Python, and looks for a module of the system's in that of whoever comes first in PATH.
ARGS     = train --model tiny --layers 1 --steps 1 --batch 4 --micro-batch 2 --quiet
EXAMPLE  =
DEBUGGED = $(call folder,debug)/$(if $(EXAMPLE),examples/$(EXAMPLE),memtape)
LLDB_SIX    = $(wildcard /usr/lib/python3/dist-packages)
LLDB_PYTHON = $(firstword $(wildcard $(shell lldb -P 2>/dev/null)/lldb/..) \
                          $(wildcard /usr/lib/llvm-*/lib/python3*/*-packages))$(LLDB_SIX:%=:%)
EXAMPLES    = $(EXAMPLE_C:examples/%.c=%)
is_example  = $(if $(filter-out $(EXAMPLES),$(EXAMPLE)),$(error EXAMPLE=$(EXAMPLE): expected one of: $(EXAMPLES)))
DEBUG_HELLO = @echo '`help memtape` lists the commands; begin with `tback $(if $(EXAMPLE),0,7)`'

gdb: deps-quiet
	$(is_example)
	+@$(SUBMAKE) $(DEBUGGED)
	$(DEBUG_HELLO)
	gdb -q -iex 'set print symbol-loading off' -x tape/debug.gdb --args $(DEBUGGED) $(if $(EXAMPLE),,$(ARGS))

# The transcripts in docs/gdb.md, as gdb says them now.
gdb-page: debug
	+@$(SUBMAKE) $(call folder,debug)/examples/by_hand
	MEMTAPE=$(call folder,debug)/memtape MEMTAPE_DEBUG=$(call folder,debug)/memtape tests/test_gdb.sh --write

lldb: deps-quiet
	$(is_example)
	+@$(SUBMAKE) $(DEBUGGED)
	$(DEBUG_HELLO)
	@export PYTHONPATH='$(LLDB_PYTHON)'; file=tape/debug.lldb; \
	lldb -x -b -o 'script print(6 * 7)' 2>/dev/null | grep -q '^42' || { \
	    echo 'The Python of lldb does not start: only tape, tnode, tledger, tarena and tcheck will work (docs/gdb.md)'; \
	    file=build/plain.lldb; sed '/^command script/d' tape/debug.lldb > $$file; }; \
	lldb -o "command source -s 1 $$file" -- $(DEBUGGED) $(if $(EXAMPLE),,$(ARGS))

install: deps-quiet
	+@$(SUBMAKE) install-files

to   = $(DESTDIR)$(PREFIX)
copy = install -m $(1) $(2) "$(to)/$(3)"

install-files: $(call folder,$(BUILD))/memtape $(call folder,$(BUILD))/libmemtape.a
	@mkdir -p "$(to)/bin" "$(to)/lib/pkgconfig"
	@$(call copy,755,$<,bin/memtape)
	@$(call copy,644,$(word 2,$^),lib/libmemtape.a)
	@for h in $(HEADERS); do \
	    mkdir -p "$(to)/include/memtape/$$(dirname $$h)" && \
	    $(call copy,644,$$h,include/memtape/$$h) || exit 1; done
	@sed -e 's|@PREFIX@|$(subst $(space),\\ ,$(PREFIX))|' -e 's|@LIBS@|$(strip \
	    $(call blas_libs_of,$(BUILD)) $(OMP_LIBS) $(LDLIBS) -lm)|' memtape.pc.in > "$(to)/lib/pkgconfig/memtape.pc"
	@echo 'installed in $(to)'

clean:
	rm -rf build memtape

help:
	@echo 'make             the program: ./memtape (and its double precision twin in build/f64)'
	@echo 'make run         install what is missing, build, train the smallest model'
	@echo 'make test        everything that is checked in under five minutes; test-long: the rest too'
	@echo 'make bench       measure this machine; bench-text DATA=FILE [ARGS=]: on a text'
	@echo 'make bench-exact what the exact order of sums costs; bench-ways: bf16, 8 bits, LoRA'
	@echo 'make examples    the programs of examples/, on the library alone'
	@echo 'make install     PREFIX=/usr/local DESTDIR= : program, library, headers, pkg-config file'
	@echo 'make gdb         a build with plain loops in the debugger, ARGS="train --model tiny" or'
	@echo '                 EXAMPLE=by_hand; lldb: in the other one; debug: only the build. Commands:'
	@echo '                 tape tnode tfwd tback treplay tnext ttensor tgrad twatch twhy tledger'
	@echo '                 tarena tlive tpeak tcheck tnan (docs/gdb.md)'
	@echo 'make deps        install the packages that are missing; deps-test: those of the tests too'
	@echo 'make tidy clean'
	@echo 'options          BLAS=openblas|builtin|loops OMP=1|0 STATIC=0|1 BUILD=release|portable'
	@echo '                 CC= V=1; the debug build uses loops unless BLAS= is given'

.PHONY: all programs run test test-long test-programs tidy examples example-programs bench \
        bench-text bench-exact bench-ways debug gdb gdb-page lldb install install-files clean help deps deps-test deps-quiet FORCE
