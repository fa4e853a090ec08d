# shellcheck shell=bash
# Calls of the system that fail (tests/trust/inject.c): each call of each command in turn. The run ends with status 4, a
# message of one line and the old output, or with the same products.
# shellcheck disable=SC2154,SC2034

# sweep CALL[:WAY]...: all commands, each call of the kind once, failing in each way. `inject` is what is preloaded, `undisturbed`
# makes the run that nothing disturbs, and both runs have the environment `under`.
inject=$SPX_BUILD/tests/trust/inject.so undisturbed=right_run
under=()
sweep() {
    local c way call total n first step
    [ -e "$inject" ] || {
        wrong "$inject was not built"
        return
    }
    export OMP_NUM_THREADS=${threads:-1}
    for c in "${cases[@]}"; do
        with=("LD_PRELOAD=$inject" "${under[@]}" "SPX_INJECT_COUNT=$PWD/count")
        "$undisturbed" "$c" || continue
        for way in "$@"; do
            call=${way%%:*} way=${way#"$call"}
            total=$(sed -n "s/^$call //p" count)
            turns "${total:-0}" || continue
            for n in $(not_plainly_right); do
                with=("LD_PRELOAD=$inject" "${under[@]}" "SPX_INJECT=$call:$n$way")
                disturbed "$c"
                again "$c" "$call:$n$way of $total"
            done
        done
    done
}

# not_plainly_right: makes the tries `first`, `first` + `step` ... `total` of sweep() in one go, branches of one run
# (sweep.c), notes those that are right, and prints the numbers of the others, which are to be made alone and judged.
not_plainly_right() {
    local n others=0
    case $inject in
    */inject.so) ;;
    *) # CUDA does not survive a fork
        seq "$first" "$step" "$total"
        return
        ;;
    esac
    rm -rf trunk try others
    with=("LD_PRELOAD=$inject" "${under[@]}" "SPX_INJECT=$call:0$way" "SPX_INJECT_SWEEP=$first:$step:$total")
    (eval "exec env ${with[*]} $c") >sweep.log 2>&1
    while read -r n; do
        case $n in
        end\ *)
            for ((n = ${n#end } - others; n > 0; n--)); do ok; done
            return
            ;;
        soft\ *) soft "$call:${n#soft }$way of $total: $c: status 4 after the whole product" ;;
        *) echo "$n" ;;
        esac
        others=$((others + 1))
    done <others
    wrong "$c: $call$way: the sweep ended early: $(head -c 300 sweep.log)"
}

# again CASE HOW: judge, of a try that was not plainly right in a sweep: it cannot be right now.
again() {
    case $inject in */inject.so) ;; *)
        judge "$@"
        return
        ;;
    esac
    local all=$trust_results trust_results
    trust_results=$PWD/again
    : >again
    judge "$@"
    if grep -q '^ok$' again; then
        trust_results=$all
        wrong "$2: $1: right, but not in a sweep (sweep.c)"
    else
        cat again >>"$all"
    fi
}

class write 23 "a write fails: disk full, EIO, quota"
class_write() { sweep write:ENOSPC pwrite:ENOSPC write:EIO pwrite:EIO pwrite:EDQUOT fwrite:ENOSPC; }

class interrupted 41 "a read or write is interrupted (EINTR) or does half"
class_interrupted() {
    sweep read:EINTR write:EINTR pread:EINTR pwrite:EINTR read:short write:short pread:short pwrite:short
}

class create 11 "making, sizing, syncing, renaming and removing a file fail"
class_create() { sweep create:EMFILE create:EROFS truncate mode sync:EIO sync:ENOSPC rename:EACCES link:EIO unlink seek; }

class close 11 "a close fails"
class_close() { sweep close:EIO close:EINTR close:ENOSPC fclose fflush; }

class read 11 "a read fails: EIO, stale network file"
class_read() { sweep pread:EIO read:EIO fread pread:ESTALE fseek; }

class open 17 "a file cannot be opened or looked at"
class_open() { sweep open:EMFILE open:EIO fopen stat:EIO stat:ESTALE; }

class thread 3 "a thread cannot be started"
# With three threads each.
class_thread() {
    local cases=("${cases[@]/ -j 1/ -j 3}")
    threads=3 sweep thread thread:on
}

class map 29 "a mapping fails"
class_map() { sweep map map:on; }

class alloc 1009 "one allocation fails, in whatever library"
class_alloc() { sweep alloc; }

class alloc-on 1511 "all allocations fail from one on"
class_alloc-on() { sweep alloc:on; }

class alloc-many 6007 "one allocation fails, in programs with three threads"
class_alloc-many() {
    local cases=("${cases[@]/ -j 1/ -j 3}")
    threads=3 sweep alloc
}
