#!/bin/sh
# install.sh [test] [--check] - the packages that the build needs (test: and the tests).
#
# Silent and quick when nothing is missing. What is missing is found by compiling, not by asking the
# package manager, so libraries built by hand count. On Debian and Ubuntu the rest is installed; on
# other systems, without the right to install, and with --check, the one command to run is printed.
# Environment: CC, BLAS, OMP and STATIC as in the Makefile.

CC=${CC:-cc} BLAS=${BLAS:-openblas} OMP=${OMP:-1}
tests=no check=no
for argument in "$@"; do
    case $argument in
    test) tests=yes ;;
    --check) check=yes ;;
    *) echo "install.sh: unknown argument $argument (expected test or --check)" >&2; exit 2 ;;
    esac
done

compiler_name=${CC##*/}
case $compiler_name in *clang*) clang=yes ;; *) clang=no ;; esac
[ "$(uname -s)" != Darwin ] || clang=no # Apple's compiler asks for libomp below, by the same test

have() { command -v "$1" >/dev/null 2>&1; }

# A header, with the search path that pkg-config or Homebrew know for its package. CC may be two
# words, and paths may have spaces: the first is split here, the second are quoted by eval.
has_header() { # header, pkg-config name
    flags=$(pkg-config --cflags "$2" 2>/dev/null) || {
        flags= prefix=$(have brew && brew --prefix "$2" 2>/dev/null) && flags="-I$prefix/include"
    }
    before=
    [ "$1" != cmocka.h ] || before='#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>'
    printf '%s\n#include <%s>\n' "$before" "$1" | eval "\$CC $flags -E -x c -" >/dev/null 2>&1
}
links() { # flags
    echo 'int main(void) { return 0; }' | $CC $1 -x c - -o /dev/null >/dev/null 2>&1
}

may_install() { have apt-get && { [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }; }

missing= # names of Debian's; other systems' are looked up at the end
need() { missing="$missing $1"; }

have make || need make
if ! have "${CC%% *}"; then
    case $compiler_name in
    clang*) need clang ;;
    *) need gcc; need libc6-dev ;;
    esac
elif ! echo '#include <stdio.h>' | $CC -E -x c - >/dev/null 2>&1; then
    need libc6-dev
fi
has_header jsmn.h jsmn || need libjsmn-dev
if [ "$BLAS" = openblas ]; then
    have pkg-config || need pkg-config
    has_header cblas.h openblas || need libopenblas-dev
fi
if [ $clang = yes ] && [ "$OMP" != 0 ]; then
    echo '#include <omp.h>' | $CC -fopenmp -E -x c - >/dev/null 2>&1 && links -fopenmp ||
        need libomp-dev
fi
if [ $tests = yes ]; then
    have pkg-config || [ "$BLAS" = openblas ] || need pkg-config
    has_header cmocka.h cmocka || need libcmocka-dev
    [ $clang = no ] || links -fsanitize=address,undefined || need libclang-rt-dev
    have gdb || ! may_install || need gdb # without it, its sessions are skipped
fi
[ -n "$missing" ] || exit 0

other_names() { # the command of another package manager, a Debian name to one of its own
    names=
    for package in $missing; do
        case $1:$package in
        dnf:gcc | dnf:make | dnf:clang) names="$names $package" ;;
        dnf:libc6-dev) names="$names glibc-devel" ;;
        dnf:libjsmn-dev) names="$names jsmn-devel" ;;
        dnf:pkg-config) names="$names pkgconf-pkg-config" ;;
        dnf:libopenblas-dev) names="$names openblas-devel" ;;
        dnf:libomp-dev) names="$names libomp-devel" ;;
        dnf:libcmocka-dev) names="$names libcmocka-devel" ;;
        dnf:libclang-rt-dev) names="$names compiler-rt" ;;
        brew:libjsmn-dev) names="$names jsmn" ;;
        brew:pkg-config) names="$names pkgconf" ;;
        brew:libopenblas-dev) names="$names openblas" ;;
        brew:libomp-dev) names="$names libomp" ;;
        brew:libcmocka-dev) names="$names cmocka" ;;
        brew:*) names="$names llvm" ;;
        esac
    done
    echo "$2$names"
}

echo "missing:$missing" >&2
apt_line="apt-get update && apt-get install -y$missing"
if ! have apt-get; then
    if have dnf; then
        command=$(other_names dnf 'sudo dnf install')
    elif have brew; then
        command=$(other_names brew 'brew install')
    else
        command="install what your system calls$missing"
    fi
    echo "to install: $command" >&2
    exit 1
fi

if [ "$(id -u)" = 0 ]; then
    as_root=
elif have sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo
else
    as_root=none
fi
if [ $check = yes ] || [ "$as_root" = none ]; then
    [ "$(id -u)" = 0 ] || apt_line="sudo sh -c '$apt_line'"
    echo "to install: $apt_line" >&2
    exit 1
fi

# A fresh machine has no package lists, a stale one has lists of files that are gone.
apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >&2; }
echo "installing:$missing" >&2
apt install -y --no-install-recommends $missing 2>/dev/null || {
    apt update && apt install -y --no-install-recommends $missing
} || {
    echo "could not install; to try by hand: $apt_line" >&2
    exit 1
}
