# shellcheck shell=bash
# Calls of the system that fail (tests/trust/inject.c): each call of each command in turn. The run ends with status 4, a
# message of one line and the old output, or with the same products.
# shellcheck disable=SC2154,SC2034

# sweep CALL[:WAY]...: all commands, each call of the kind once, failing in each way. `inject` is what is preloaded, `first`
# makes the run that nothing disturbs, and both runs have the environment `under`.
inject=$SPX_BUILD/tests/trust/inject.so first=right_run
under=()
sweep() {
    local c way call total n
    [ -e "$inject" ] || {
        wrong "$inject was not built"
        return
    }
    export OMP_NUM_THREADS=${threads:-1}
    for c in "${cases[@]}"; do
        with=("LD_PRELOAD=$inject" "${under[@]}" "SPX_INJECT_COUNT=$PWD/count")
        "$first" "$c" || continue
        for way in "$@"; do
            call=${way%%:*} way=${way#"$call"}
            total=$(sed -n "s/^$call //p" count)
            for ((n = 1; n <= total; n++)); do
                turn || continue
                with=("LD_PRELOAD=$inject" "${under[@]}" "SPX_INJECT=$call:$n$way")
                disturbed "$c"
                judge "$c" "$call:$n$way of $total"
            done
        done
    done
}

class write 23 "a write fails: disk full, EIO, quota"
class_write() { sweep write:ENOSPC pwrite:ENOSPC write:EIO pwrite:EIO pwrite:EDQUOT fwrite:ENOSPC; }

class interrupted 97 "a read or write is interrupted (EINTR) or does half"
class_interrupted() {
    sweep read:EINTR write:EINTR pread:EINTR pwrite:EINTR read:short write:short pread:short pwrite:short
}

class create 11 "making, sizing, syncing, renaming and removing a file fail"
class_create() { sweep create:EMFILE create:EROFS truncate mode sync:EIO sync:ENOSPC rename:EACCES link:EIO unlink seek; }

class close 11 "a close fails"
class_close() { sweep close:EIO close:EINTR close:ENOSPC fclose fflush; }

class read 41 "a read fails: EIO, stale network file"
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

class alloc 3001 "one allocation fails, in whatever library"
class_alloc() { sweep alloc; }

class alloc-on 5003 "all allocations fail from one on"
class_alloc-on() { sweep alloc:on; }
