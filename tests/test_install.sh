#!/bin/sh
# What is installed suffices: every header compiles, and pkg-config's answer links a program.
command -v pkg-config >/dev/null || { echo 'no pkg-config here'; exit 77; }
CC=${CC:-cc}
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
root="$place/a root"

# The options of the make that runs this, but for its jobs, which are not ours to wait for.
MAKEFLAGS=$(echo "$MAKEFLAGS" | sed 's/ *-j[0-9]*//; s/ *--jobserver-[a-z]*=[^ ]*//')
export MAKEFLAGS
make install CC="$CC" BLAS="${BLAS:-openblas}" OMP="${OMP:-1}" \
    DESTDIR="$root" PREFIX=/opt/memtape || exit 1
"$root/opt/memtape/bin/memtape" --help >/dev/null || { echo 'the program does not start'; exit 1; }

headers=$(cd "$root/opt/memtape/include/memtape" && find . -name '*.h' | sed 's,^\./,,' | sort)
[ -n "$headers" ] || { echo 'no headers'; exit 1; }
{
    for h in $headers; do echo "#include \"$h\""; done
    echo '#include <stdio.h>'
    echo 'int main(void) { return puts(blas_name()) < 0; }'
} >"$place/user.c"

# The prefix that the file names is where a package would be unpacked, not where it is now.
export PKG_CONFIG_PATH="$root/opt/memtape/lib/pkgconfig"
flags=$(pkg-config --define-variable=prefix="$(echo "$root/opt/memtape" | sed 's/ /\\ /g')" \
    --cflags --libs memtape) || exit 1
cd "$place" && eval "$CC -std=c11 user.c $flags -o user" && ./user
