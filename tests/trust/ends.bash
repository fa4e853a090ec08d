# shellcheck shell=bash
# Ends in the middle, disks that are full, several writers, outputs that are inputs.
# shellcheck disable=SC2154,SC2016

# kill_at SIGNAL MICROSECONDS CASE: an old or a new product, whole; only SIGKILL leaves a temporary file, which
# specpipe-info --clean removes.
kill_at() {
    local f left
    rm -rf out
    cp -r old out
    (eval "exec env ${with[*]} $3") >stdout 2>stderr &
    local pid=$!
    sleep "$(printf '%d.%06d' $(($2 / 1000000)) $(($2 % 1000000)))"
    kill "-$1" $pid 2>/dev/null
    wait $pid 2>/dev/null
    status=$?
    for f in right/*; do
        f=${f#right/}
        cmp -s "out/$f" "right/$f" || cmp -s "out/$f" "old/$f" || {
            wrong "$1 after $2 us: $3: $f is neither old nor new"
            return
        }
    done
    [ "$1" != KILL ] || { specpipe-info --clean out && specpipe-info --clean tmp; } >cleaned
    left=$(find tmp out -mindepth 1 -printf '%P\n' | while read -r f; do [ -e "right/$f" ] || echo "$f"; done)
    if [ -n "$left" ]; then
        wrong "$1 after $2 us: $3: left behind: $left"
        rm -rf tmp/* tmp/.[!.]*
    elif [ $status -ne 0 ] && [ $status -ne $((128 + $(kill -l "$1"))) ]; then
        wrong "$1 after $2 us: $3: status $status: $(head -c 200 stderr)"
    else
        ok
    fi
}

class kill 47 "SIGKILL, SIGTERM, SIGINT, SIGHUP at 16 moments of a run over an old output"
class_kill() {
    local c signal k begun took
    export OMP_NUM_THREADS=1
    trap - INT # what is ignored here is ignored by the programs
    for c in "${cases[@]}"; do
        with=()
        begun=$(date +%s%N)
        right_run "$c" || continue
        took=$((($(date +%s%N) - begun) / 1000))
        for signal in KILL TERM INT HUP; do
            for ((k = 1; k <= 16; k++)); do
                turn && kill_at $signal $((took * k / 16)) "$c"
            done
        done
    done
}

class full 31 "a full disk: a tmpfs of each size (as root), devices and descriptors that take nothing"
class_full() {
    local c size name
    export OMP_NUM_THREADS=1
    mkdir -p disk
    for c in "${cases[@]}"; do
        with=()
        right_run "$c" || continue
        if [[ $c == *out/* ]] && [ "$(id -u)" = 0 ]; then
            for size in 4 8 16 24 32 48 64 96 128 256 512 1024; do
                turn || continue
                mount -t tmpfs -o "size=${size}k" none disk 2>/dev/null || break
                # the old output is on the disk, too, as far as it fits
                mv old old.whole
                mkdir disk/out && mv out out.whole && ln -s disk/out out
                (eval "exec timeout -k 5 60 env $c") >stdout 2>stderr
                status=$?
                left=$(find disk tmp -mindepth 1 -type f | while read -r f; do cmp -s "$f" "right/${f##*/}" || echo "$f"; done)
                new=$(find disk -type f | wc -l)
                umount disk
                rm out && mv out.whole out && mv old.whole old
                if [ -n "$left" ] || ! { [ $status -eq 4 ] || { [ $status -eq 0 ] && [ "$new" -eq "$(find right -type f | wc -l)" ]; }; }; then
                    wrong "tmpfs of $size KiB: $c: status $status; left: $left; $(head -c 200 stderr)"
                else
                    ok
                fi
            done
        fi
        # a text or product on standard output is missed; a message that nobody reads is not
        for name in '>/dev/full' '>&-' '2>&-' '<&- 2>&-'; do
            turn || continue
            [[ $c != *\<* || $name != *\<* ]] || continue
            disturbed "$c $name"
            if [[ $name != 2* && $name != \<* && -s right.stdout ]]; then
                [ "$status" -eq 4 ] && grep -q "^${c%% *}: " stderr && ok && continue
                wrong "$name: $c: status $status: $(head -c 200 stderr)"
            elif [ "$status" -ne 0 ] || ! diff -r out right >/dev/null || { [[ $name != \>* ]] && ! cmp -s stdout right.stdout; }; then
                wrong "$name: $c: status $status: $(head -c 200 stderr)"
            else
                ok
            fi
        done
    done
}

class writers 7 "two writers of one output, with and without -f, and a reader meanwhile"
class_writers() {
    local k a b f s n
    export OMP_NUM_THREADS=1
    for ((k = 0; k < 100; k++)); do
        turn || continue
        rm -rf ./*
        f=()
        [ $((k % 2)) -eq 0 ] || f=(-f)
        h5merge -q --reproducible "${f[@]}" "$d/frame-b0.h5" -o out.h5 2>err.a &
        a=$!
        h5merge -q --reproducible "${f[@]}" "$d/frame-r0.h5" -o out.h5 2>err.b &
        b=$!
        n=0
        # whenever there is an output, it is whole
        while kill -0 $a 2>/dev/null || kill -0 $b 2>/dev/null; do
            [ ! -e out.h5 ] || h5check out.h5 >checked 2>&1 || n=$((n + 1))
        done
        wait $a
        s=$?
        wait $b
        s=$s$?
        if [ "$n" -gt 0 ]; then
            wrong "try $k: a reader found an output that is not whole: $(head -c 200 checked)"
        elif [ ! -e out.h5 ] || ! h5check out.h5 >checked 2>&1; then
            wrong "try $k: status $s, no output: $(cat err.*)"
        elif [ "${#f[@]}" -eq 0 ] && [[ $s != 04 && $s != 40 ]]; then
            wrong "try $k: without -f, status $s"
        elif [ "${#f[@]}" -eq 1 ] && [ $s != 00 ]; then
            wrong "try $k: with -f, status $s: $(cat err.*)"
        elif [ "$(find . -name '.*.specpipe-*' | wc -l)" -ne 0 ]; then
            wrong "try $k: left behind: $(ls -A)"
        else
            ok
        fi
    done
}

class same 11 "output = input, by path, links, folders, >>, <>, /dev/stdout"
class_same() {
    local c name s
    local -a commands=('h5merge -q in.h5' 'h52fits -q in.h5' 'h5svd -q -k 1 in.h5:/frame/flux' 'h5reduce -q in.h5:/frame/flux'
        'rvs-fit -q -j 1 --templates $d/templates.h5 in.h5' 'specx-sky -q -j 1 in.h5' 'specx-flux -q -j 1 --fit $d/stars-r0.h5 in.h5'
        'specx-flat -q -j 1 in.h5' 'h5merge -q $d/frame-b0.h5 in.h5' 'specx-extract -q image.h5 --spectra 0:1 -w 6400,6410,0.8'
        'fits2h5 -q in.fits' 'specx-shift -q -j 1 image.h5' 'npz2h5 -q -l teff:1000,logg,feh,vturb in.npz'
        'rvs-template -q -j 1 lib.h5 --setup r:6400:6600:0.5:FWHM=1.8' 'specx-sim -q --psf image.h5 --fibers 1')
    for c in "${commands[@]}"; do
        local in
        in=$(grep -o ' [a-z]*\.\(h5\|fits\|npz\)' <<<"$c" | tail -n 1)
        in=${in# }
        for name in "-f -o $in" "-f -o sl" "-f -o hl" "-f -o dd/$in" "-f -o ././$in" "-f -o $PWD/$in" "-o $in" ">>$in" "1<>$in" "-f -o /dev/stdout 1<>$in" "-f -o /proc/self/fd/1 >>$in"; do
            turn || continue
            rm -rf ./*
            cp "$d/frame-r0.h5" in.h5
            cp "$d/image-r0.h5" image.h5
            cp "$d/library.h5" lib.h5
            cp "$d/preproc-r0.fits" in.fits
            cp "$d/payne.npz" in.npz
            ln -s "$in" sl
            ln "$in" hl
            ln -s . dd
            mkdir elsewhere
            cp "$in" elsewhere/kept
            (eval "exec timeout 60 $c $name") >/dev/null 2>err
            s=$?
            if ! cmp -s "$in" elsewhere/kept || ! cmp -s "$in" hl || [ ! -L sl ] || { [ $s -ne 2 ] && [ $s -ne 4 ]; } || [ ! -s err ]; then
                wrong "$c $name: status $s: $(head -c 200 err)"
            else
                ok
            fi
        done
    done
}
