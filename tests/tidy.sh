#!/usr/bin/env bash
# tidy.sh - the rules of style that a machine can check. Each breach is one line; any is a failure.
# Environment: CC, the compiler that headers are tried with.

cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C.UTF-8 # columns are characters

# Who may call malloc and its family (memory of the world outside: texts, files, options), and who
# may ask the system for pages. Nobody else: the plan would not know.
may_malloc='data/text_file\.c|nn/safetensors\.c'
may_mmap='tape/arena\.c'
max_columns=100
max_function=70

failed=0
bad() { # file:line:, what is wrong
    echo "tidy: $1 $2"
    failed=1
}

sources() { find "$@" -name '*.[ch]' 2>/dev/null | sort; }
all=$(sources tape nn data src tests examples)
[ -n "$all" ] || { echo 'tidy: no sources here'; exit 1; }

# What follows looks for code: the copies have no comments, and the same lines.
code=$(mktemp -d) || exit 1
trap 'rm -rf "$code"' EXIT
for f in $all; do
    mkdir -p "$code/${f%/*}"
    sed 's,//.*,,' "$f" >"$code/$f"
done

# Reports the lines of code that match, in the files of the named folders, but for the excepted.
forbid() { # pattern, what is wrong, folders, [pattern of files that may]
    local found
    found=$(cd "$code" && grep -rnE "$1" $(ls -d $3 2>/dev/null) /dev/null)
    [ -z "$4" ] || found=$(printf '%s' "$found" | grep -vE "^($4):")
    [ -n "$found" ] || return 0
    while IFS= read -r line; do
        bad "$(printf '%s' "$line" | cut -d : -f 1-2):" "$2"
    done <<<"$found"
}

# ---- who may include whom ----

may_include() { # folder, pattern of what it may include, the same in words
    local line at
    while IFS= read -r line; do
        [ -n "$line" ] || continue
        at=$(printf '%s' "$line" | cut -d : -f 1-2)
        bad "$at:" "${line#"$at":}: $1 may include $3"
    done <<<"$(cd "$code" && grep -rnE '^ *# *include *"' "$1" 2>/dev/null |
        grep -vE "# *include *\"($2)\"")"
}
may_include tape 'tape/.*' 'tape/ only'
may_include nn '(nn|tape)/.*' 'nn/ and tape/'
may_include data 'data/.*|tape/(base|rng|text)\.h' 'data/ and tape/base.h, rng.h, text.h'
may_include src '(src|nn|data|tape)/.*' 'src/, nn/, data/ and tape/'
may_include examples '(nn|data|tape)/.*' 'nn/, data/ and tape/'
may_include tests '(tests|src|nn|data|tape)/.*' 'names spelled from the top'

for f in $(cd "$code" && grep -rhoE '^ *# *include *"[^"]*"' . | sed 's/.*"\(.*\)"/\1/' | sort -u); do
    [ -f "$f" ] || bad "$f:" 'included, from the top, and not there'
done

# Internals stay in their folder; what is installed includes what is installed.
is_internal='# *include *"[^"]*_int\.h"'
forbid '# *include *"(nn|data|src)/[^"]*_int\.h"' 'internals of another folder' tape
forbid '# *include *"(tape|data|src)/[^"]*_int\.h"' 'internals of another folder' nn
forbid '# *include *"(tape|nn|src)/[^"]*_int\.h"' 'internals of another folder' data
forbid '# *include *"(tape|nn|data)/[^"]*_int\.h"' 'internals of another folder' src
forbid "$is_internal" 'an example uses what is installed' examples
for f in $(sources tape nn data | grep -E '\.h$' | grep -vE '_int\.h$|^tape/cpu/'); do
    ! grep -qE "$is_internal|# *include *\"tape/cpu/" "$code/$f" ||
        bad "$f:" 'a public header includes an internal one'
done

# ---- memory, ends, threads, the world ----

family='(malloc|calloc|realloc|reallocarray|free|aligned_alloc|posix_memalign|strdup|strndup)'
family="$family|(getline|getdelim|asprintf|vasprintf|open_memstream|alloca)"
forbid "\\b($family) *\\(" 'allocates outside the arena' 'tape nn data src' "$may_malloc"
forbid '\b(mmap|munmap|mremap|madvise|mprotect|sbrk|brk) *\(' 'pages are the business of the arena' \
    'tape nn data src' "$may_mmap"
forbid '\b(exit|_exit|_Exit|quick_exit|abort|assert) *\(' 'a library returns an error or CHECKs' \
    'tape nn data' 'tape/base\.c'
forbid '# *pragma +omp|\bomp_(get|set|init|test|unset|in)_?[a-z_]* *\(|<omp\.h>' \
    'OpenMP belongs in tape/ops and tape/cpu' 'tape nn data src' 'tape/(ops|cpu)/[^:]*'
forbid '\b(getenv|secure_getenv|setenv|putenv) *\(' 'the environment is read in src/' \
    'tape nn data examples'

# ---- text ----

while IFS= read -r line; do
    [ -z "$line" ] || bad "$(printf '%s' "$line" | cut -d : -f 1-2):" "over $max_columns columns"
done <<<"$(grep -nE "^.{$((max_columns + 1)),}" $all /dev/null)"

later='TO''DO|FIX''ME|X''XX'
while IFS= read -r line; do
    [ -z "$line" ] || bad "$(printf '%s' "$line" | cut -d : -f 1-2):" 'belongs in an issue'
done <<<"$(grep -nwE "$later" $all Makefile tests/*.sh /dev/null)"

for f in $all; do
    found=$(awk -v max="$max_function" '
        /^{/ { open = NR }
        /^}/ && open {
            if (NR - open + 1 > max)
                print open
            open = 0
        }' "$code/$f")
    for line in $found; do bad "$f:$line:" "a function of more than $max_function lines"; done
done

# Stems are unique, so that a prefix names one place; a device's twin has the name of its original.
while read -r stem; do
    bad "$stem:" "$(printf '%s ' $(printf '%s\n' $all | grep -E "/$stem\.[ch]$"))share a stem"
done < <(for f in $all; do
    stem=${f##*/}
    case $f in tape/cuda/*) ;; *) echo "${stem%.*} ${f%/*}" ;; esac
done | sort -u | cut -d ' ' -f 1 | uniq -d)

# ---- backward says what it inverts ----

# In an op's file, `// forward: TEXT` stands directly above the statement that computes a gradient,
# and TEXT stands, spaces aside, in the code above it: a quote cannot go stale.
for f in $(sources tape/ops); do
    grep -qE '^static void [a-z_]+_backward\(' "$code/$f" || continue
    while IFS= read -r found; do
        case $found in
        '') ;;
        none) bad "$f:" 'backward quotes no statement of forward (// forward: TEXT)' ;;
        *) bad "$f:${found%% *}:" "${found#* }" ;;
        esac
    done <<<"$(awk '
        function squeeze(s) { gsub(/[ \t]+/, " ", s); return s }
        NR == FNR { code[FNR] = $0; next }
        !/^ *\/\/ forward: *[^ ]/ { next }
        {
            quotes++
            above = ""
            for (i = 1; i < FNR; i++)
                above = above " " code[i]
            sub(/^ *\/\/ forward: */, "")
            if (index(squeeze(above), squeeze($0)) == 0)
                print FNR " quotes what forward does not say"
            at[FNR] = 1
        }
        END {
            for (i in at)
                if (code[i + 1] !~ /[a-z]/ && !((i + 1) in at))
                    print i " quotes forward, and no statement follows"
            if (!quotes)
                print "none"
        }' "$code/$f" "$f")"
done

# ---- headers ----

headers=$(printf '%s\n' $all | grep -E '\.h$')
for f in $headers; do
    case $(head -n 1 "$f") in
    "// ${f##*/} - "?*) ;;
    *) bad "$f:1:" "the first line is: // ${f##*/} - what it promises" ;;
    esac
done

# Alone, in both widths. cmocka.h is not for everyone's machine.
for f in $headers; do
    case $f in tests/*) grep -q 'cmocka\.h' "$f" && continue ;; esac
    for width in '' -DTAPE_F64; do
        echo "#include \"$f\"" | ${CC:-cc} -std=c11 -I. -Wall -Wextra $width \
            -Wno-unknown-pragmas -Werror -fsyntax-only -x c - || bad "$f:" "does not compile alone $width"
    done
done

# ---- format ----

if command -v clang-format >/dev/null; then
    for f in $all; do
        where=$(clang-format --dry-run -Werror "$f" 2>&1) ||
            bad "$(printf '%s' "$where" | head -n 1 | cut -d : -f 1-2):" 'clang-format -i would change it'
    done
else
    echo 'tidy: no clang-format here: the format is not checked'
fi

exit $failed
