# Failures of the system: full disks, unwritable places, signals, no memory. A program ends with exit status 4 and a
# message, and leaves nothing behind.

load common

setup_file() {
    example_data
}

# `writers`
. "$SPX_ROOT/tests/programs.sh"

@test "every program that writes a file is here" {
    diff <(printf '%s\n' "${writers[@]%% *}" | sort -u) \
        <(cd "$SPX_ROOT/tools" && programs | sed 's/$/.c/' | xargs grep -L SPX_OUT_NONE | sed 's/\.c$//')
}

# limited BLOCKS COMMAND...: with this limit on the size of files, 1024 bytes each.
# The limit holds for a file that takes the messages too: they go through a pipe.
limited() {
    { (ulimit -f "$1" && "${@:2}") 2>&1 >&9 9>&- | cat >&2; } 9>&1
}

@test "full disk: standard output and the device itself" {
    [ -c /dev/full ] || skip "no /dev/full"
    local d=$BATS_FILE_TMPDIR/data w
    mkdir tmp
    export TMPDIR=$PWD/tmp
    for w in "${writers[@]}"; do
        eval "set -- $w"
        fails_with 4 "$1: *No space left on device*" bash -c '"$@" >/dev/full' - "$@"
        fails_with 4 "$1: /dev/full: *No space left on device*" "$@" -o /dev/full
        [ -c /dev/full ]
    done
    [ -z "$(ls -A tmp)" ]
    # Text too.
    fails_with 4 'h5table: *disk full*' bash -c 'h5table "$1" >/dev/full' - "$d/rv.h5"
    fails_with 4 'h5check: *No space left on device*' bash -c 'h5check --schema=text >/dev/full'
}

@test "full disk: a file that cannot grow" {
    local d=$BATS_FILE_TMPDIR/data w n
    mkdir tmp
    export TMPDIR=$PWD/tmp
    for w in "${writers[@]}"; do
        eval "set -- $w"
        for n in 0 1 8; do
            fails_with 4 "$1: x.h5*: cannot *" limited $n "$@" -o x.h5
        done
    done
    fails_with 4 "specx-sim: truth.h5*" limited 1 specx-sim -q --wavelength 6400,6410 --fibers 2 --truth truth.h5 -o x.h5
    fails_with 4 "specx-sim: *" limited 8 specx-sim -q --wavelength 6400,6410 --fibers 2 --psf-output psf.fits -o x.h5
    [ -z "$(ls -A tmp)" ]
    # An old output is still there.
    echo precious >x.h5
    fails_with 4 "*" limited 8 h5merge -q -f "$d/spectra.h5" -o x.h5
    [ "$(cat x.h5)" = precious ]
}

@test "places where nothing can be written" {
    local d=$BATS_FILE_TMPDIR/data w
    touch file
    mkdir folder
    for w in "${writers[@]}"; do
        eval "set -- $w"
        fails_with 4 "$1: nowhere/x.h5: cannot write in directory nowhere*" "$@" -o nowhere/x.h5
        fails_with 4 "$1: file/x.h5: *Not a directory*" "$@" -o file/x.h5
        fails_with 4 "$1: /proc/x.h5: cannot write in directory /proc*" "$@" -o /proc/x.h5
        if [[ $1 != specx-@(extract|flux|preproc|shift|sky) ]]; then # whose frames go into a folder
            fails_with 4 "$1: folder: is a directory*" "$@" -f -o folder
            fails_with 4 "$1: *: is a directory*" "$@" -o folder/
        fi
        fails_with 4 "$1: *" "$@" -o "$(printf 'x%.0s' {1..300}).h5"
    done
    # Symbolic links: the link is replaced, never what it leads to, and a dangling one is said to be one.
    local made=(h5merge -q "$d/frame-b0.h5")
    ln -s absent link
    fails_with 4 "h5merge: link: is a symbolic link that leads to no file: give -f *" "${made[@]}" -o link
    "${made[@]}" -f -o link
    [ ! -L link ] && [ ! -e absent ] && rm link
    echo precious >old
    ln -s old link
    fails_with 4 "h5merge: link: exists already*" "${made[@]}" -o link
    "${made[@]}" -f -o link
    [ ! -L link ] && [ "$(cat old)" = precious ]
    # A name of 255 bytes is one.
    local long
    long=$(printf 'x%.0s' {1..255})
    "${made[@]}" -o "$long"
    [ -s "$long" ]
    fails_with 4 "specx-sim: nowhere/t.h5*" specx-sim -q --wavelength 6400,6410 --truth nowhere/t.h5 -o x.h5
}

@test "a signal in the middle leaves nothing" {
    local s status
    mkdir tmp
    mkfifo pipe
    export TMPDIR=$PWD/tmp
    local signals=(TERM HUP SEGV)
    # AddressSanitizer keeps crashes for itself.
    [ -z "${ASAN_OPTIONS:-}" ] || signals=(TERM HUP)
    for s in "${signals[@]}"; do
        # The truth goes first, into a pipe that nobody reads: the program waits with its output unfinished.
        specx-sim -q --wavelength 6400,6410 --fibers 2 --truth pipe -o x.h5 &
        local pid=$!
        wait_for $pid compgen -G '.x.h5.*'
        wait_for $pid compgen -G 'tmp/.*'
        kill -$s $pid
        status=0
        wait $pid || status=$?
        [ "$status" -eq $((128 + $(kill -l $s))) ]
        [ "$(ls -A)" = "$(printf 'pipe\ntmp')" ]
        [ -z "$(ls -A tmp)" ]
    done
}

# alloc_fails COMMAND...: the command, built with failing memory and sanitizers; its first allocation fails, its second
# ... all of the first 30, then every so many, until nothing fails.
alloc_fails() {
    local n=1 status left
    while :; do
        status=0
        SPX_FAULT_ALLOC=$n "$SPX_BUILD/sanitize/bin/$1" "${@:2}" >out 2>err </dev/null || status=$?
        [ $status -ne 0 ] || break
        left=$(find . -type f ! -name out ! -name err)
        if [ $status -ne 4 ] || [ -s out ] || [ -n "$left" ] || ! grep -q "^$1: .*memory" err; then
            printf 'allocation %d of %s: status %d, %d bytes of output, files: %s\n' "$n" "$*" $status \
                "$(wc -c <out)" "$left"
            head -n 40 err
            return 1
        fi
        n=$((n < 30 ? n + 1 : n + n / 6))
        [ $n -lt 1000000 ]
    done
    # Without a failure it did something, after some allocations.
    [ $n -gt 5 ]
    rm -f x.h5 out err
}

@test "memory runs out, at the first allocation, the second ..." {
    [ -z "${ASAN_OPTIONS-}${UBSAN_OPTIONS-}" ] || skip "a sanitizer is at work already"
    local d=$BATS_FILE_TMPDIR/data w
    ${MAKE:-make} -C "$SPX_ROOT" -s -j2 BUILD="$SPX_BUILD" sanitized >make.log 2>&1 || {
        tail -n 30 make.log
        return 1
    }
    rm make.log
    export ASAN_OPTIONS=exitcode=99:detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$SPX_ROOT/tests/lsan.supp:print_suppressions=0
    for w in "${writers[@]}"; do
        eval "set -- $w"
        alloc_fails "$@" -o x.h5
    done
    alloc_fails h5merge -q "$d/frame-b0.h5" -o -
    alloc_fails h5check "$d/rv.h5"
    alloc_fails h5table "$d/rv.h5"
}

@test "closed standard streams: no message lands in a product, no product is lost" {
    local d=$BATS_FILE_TMPDIR/data
    specx-sim -q --seed 3 --wavelength 6400,6410 --fibers 2 --reproducible -o right.fits
    specx-sim -v --seed 3 --wavelength 6400,6410 --fibers 2 --reproducible -o a.fits 2>&-
    cmp right.fits a.fits
    specx-sim -v --seed 3 --wavelength 6400,6410 --fibers 2 --reproducible -o b.fits <&- >&- 2>&-
    cmp right.fits b.fits
    fails_with 4 '*standard output*' bash -c 'h52fits -q "$1" -o - >&-' - "$d/frame-b0.h5"
    fails_with 4 '*standard output*' bash -c 'specx-sim -q --wavelength 6400,6410 --fibers 2 --format fits -o - >&-'
    fails_with 4 '*standard output*' bash -c 'h5merge -q "$1" -o - >&-' - "$d/frame-b0.h5"
    fails_with 4 '*standard output*' bash -c 'h5table "$1" >&-' - "$d/rv.h5"
    fails_with 4 '*standard input*' bash -c 'h52fits -q -o x.fits - <&-'
}

@test "killed programs leave files that specpipe-info --clean removes" {
    mkfifo pipe
    # A pipe that nobody reads: the program waits with its output unfinished.
    specx-sim -q --wavelength 6400,6410 --fibers 2 --truth pipe -o x.h5 &
    local pid=$!
    wait_for $pid compgen -G '.x.h5.*'
    specpipe-info --clean . >told
    grep -qx '\.x\.h5\.specpipe-[0-9a-f]*-'$pid'-[A-Za-z0-9]*: kept: its process runs' told
    kill -KILL $pid
    wait $pid || true
    specpipe-info --clean . >told
    grep -qx '\.x\.h5\.specpipe-.*: removed' told
    [ "$(ls -A)" = "$(printf 'pipe\ntold')" ]
    specpipe-info --clean "${TMPDIR:-/tmp}" >/dev/null
    fails_with 4 'specpipe-info: nowhere: cannot be read: No such file*' specpipe-info --clean nowhere
}

@test "a read that fails while blocks are handed on is no crash" {
    # H5Ocopy() of HDF5 1.10 crashed where it could not read the values of a dataset.
    local inject=$SPX_BUILD/tests/trust/inject.so n total
    [ -e "$inject" ] || skip "built with sanitizers: they have the calls already"
    local c=(specx-preproc -q -j 1 -f -o x.h5 "$BATS_FILE_TMPDIR/data/raw-r0.h5")
    LD_PRELOAD=$inject SPX_INJECT_COUNT=count "${c[@]}"
    total=$(sed -n 's/^pread //p' count)
    for ((n = total - 40; n <= total; n++)); do
        fails_with 4 'specx-preproc: *: *nput/output error*' env "LD_PRELOAD=$inject" "SPX_INJECT=pread:$n" "${c[@]}"
    done
}

@test "a header that cannot be read a second time is no crash" {
    local inject=$SPX_BUILD/tests/trust/inject.so n total
    [ -e "$inject" ] || skip "built with sanitizers: they have the calls already"
    local d=$BATS_FILE_TMPDIR/data
    local c=(rvs-fit -q -j 1 --joint target --epochs --templates "$d/templates.h5" --rows 0:1 -f -o x.h5 "$d/spectra.h5")
    LD_PRELOAD=$inject SPX_INJECT_COUNT=count "${c[@]}"
    total=$(sed -n 's/^pread //p' count)
    # the middle of the exposure is looked for in the header when the table is written
    for ((n = total - 40; n <= total; n++)); do
        run --separate-stderr env "LD_PRELOAD=$inject" "SPX_INJECT=pread:$n" "${c[@]}"
        [[ $status == 0 || $status == 4 && $stderr == 'rvs-fit: '*'nput/output error'* ]] || {
            echo "read $n: status $status: $stderr"
            false
        }
    done
}

@test "a read that fails in the head of spectra of several arms is no crash" {
    local inject=$SPX_BUILD/tests/trust/inject.so n total
    [ -e "$inject" ] || skip "built with sanitizers: they have the calls already"
    local c=(h52fits -q -f -o x.fits "$BATS_FILE_TMPDIR/data/spectra.h5")
    LD_PRELOAD=$inject SPX_INJECT_COUNT=count "${c[@]}"
    total=$(sed -n 's/^pread //p' count)
    for ((n = 1; n <= total; n++)); do
        run --separate-stderr env "LD_PRELOAD=$inject" "SPX_INJECT=pread:$n" "${c[@]}"
        # 0: a read that is made again in another way, as of the inventory
        [[ $status == 0 || $status == 4 && $stderr == 'h52fits: '*'nput/output error'* ]] || {
            echo "read $n: status $status: $stderr"
            false
        }
    done
}

@test "a stack that is too small, and stacks of threads" {
    local d=$BATS_FILE_TMPDIR/data k w
    need_program prlimit
    [ -z "${ASAN_OPTIONS-}${UBSAN_OPTIONS-}" ] || skip "sanitizers need a larger stack"
    for k in 40 100 300; do
        for w in "${writers[@]}"; do
            eval "set -- $w"
            fails_with 4 "$1: the stack is limited to less than 1 MiB: *" prlimit --stack=$((k * 1024)) "$@" -o x.h5
        done
    done
    # A soft limit is raised, and threads do not depend on OMP_STACKSIZE.
    OMP_STACKSIZE=16K prlimit --stack=100000:8388608 rvs-fit -q -j 3 --templates "$d/templates.h5" "$d/spectra.h5" -o rv.h5
}

# Where the address space is full the stack cannot grow: a function with a large frame crashed, with 89.6 MB.
@test "the address space is limited: status 4 and a message at each size" {
    need_program prlimit
    [ -z "${ASAN_OPTIONS-}${UBSAN_OPTIONS-}" ] || skip "sanitizers take the address space"
    local as ended=0 st
    local d=$BATS_FILE_TMPDIR/data
    for ((as = 60000000; as < 130000000; as += 400000)); do
        st=0
        OMP_NUM_THREADS=2 prlimit --as=$as rvs-fit -q -j 1 -t "$d/templates.h5" "$d/spectra.h5" >/dev/null 2>err || st=$?
        case $st in
        0 | 127) ;; # 127: before main()
        1) grep -q '^libgomp: Out of memory' err ;;
        4)
            grep -qE '^rvs-fit: .*(memory|failed to map)' err
            ended=$((ended + 1))
            ;;
        *)
            echo "$as: status $st: $(<err)"
            false
            ;;
        esac
    done
    [ $ended -gt 0 ]
}

@test "plug-ins are not looked for in the current folder" {
    local there=$PWD
    mkdir -p lib/specpipe here
    touch lib/specpipe/hook-python.so hook-python.so
    echo 'def hook(a): pass' >h.py
    SPX_BACKENDS=. fails_with 2 '*SPX_BACKENDS=.: *full path*' burgers --hook h.py -o out.h5
    SPX_BACKENDS='' fails_with 2 '*SPX_BACKENDS=: *full path*' burgers --hook h.py -o out.h5
    # Without /proc, started by a name that depends on the folder.
    unshare -rm true 2>/dev/null || skip "no mount namespace can be made here"
    unshare -rm sh -c 'mount -t tmpfs none /proc' 2>/dev/null || skip "/proc cannot be covered here"
    mkdir bin
    cp "$(command -v burgers)" bin/
    # shellcheck disable=SC2016
    fails_with 2 '*hook-python.so: nothing says where this program is installed*SPX_BACKENDS*' \
        unshare -rm sh -c 'mount -t tmpfs none /proc && cd here && exec ../bin/burgers --hook ../h.py -o out.h5'
    # By its full name it works, and so do outputs.
    unshare -rm sh -c "mount -t tmpfs none /proc && exec $SPX_BUILD/bin/burgers -q --cells 40 --steps 30 -o $there/x.h5"
    h5check x.h5
    unshare -rm sh -c "mount -t tmpfs none /proc && exec $SPX_BUILD/bin/specpipe-info" | grep -v '^hook python.*nothing says'
}

@test "a frame without its mask is refused" {
    local d=$BATS_FILE_TMPDIR/data
    cp "$d/frame-r0.h5" f.h5
    h5edit f.h5 delete /frame/mask
    # shellcheck disable=SC2016
    for w in 'rvs-fit -q --templates $d/templates.h5 f.h5' 'h5merge -q f.h5' 'h52fits -q f.h5'; do
        eval "set -- $w"
        fails_with 3 '*f.h5:/frame/mask: *is missing*' "$@" -o x.h5
    done
}
