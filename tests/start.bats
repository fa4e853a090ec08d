# The start of a program: threads, and loading of BLAS.
load common

setup_file() {
    PATH=$SPX_BUILD/tests/helpers:$PATH
    mock_library "$BATS_FILE_TMPDIR/library.h5" 5000 5400 5000 6000
}

# threads_of COMMAND...: how many threads it starts beside the first.
threads_of() {
    local st=0
    # the leak checker would have to trace what is traced already
    ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 count_threads count "$@" >/dev/null || st=$?
    [ $st -ne 77 ] || skip "processes may not be traced here"
    [ $st -eq 0 ] || return $st
    cat count
}

# A program's threads are counted, so that none below means none.
@test "start: threads are counted where there are some" {
    [ "$(nproc)" -gt 1 ] || skip "one processor"
    threads_of rvs-template -q -j 2 -s a:5050:5350:0.4:R=3000 -o t.h5 "$BATS_FILE_TMPDIR/library.h5" >n
    [ "$(cat n)" -ge 1 ]
}

@test "start: no program starts a thread to say its version" {
    for p in "$SPX_BUILD"/bin/*; do
        threads_of "$p" --version >n
        [ "$(cat n)" -eq 0 ] || { echo "$p: $(cat n)"; false; }
    done
}

@test "start: with -j 1 there is one thread, whatever the machine has" {
    threads_of rvs-template -q -j 1 -s a:5050:5350:0.4:R=3000 -o t.h5 "$BATS_FILE_TMPDIR/library.h5" >n
    [ "$(cat n)" -eq 0 ]
    OPENBLAS_NUM_THREADS=2 threads_of h5svd -q -j 1 -o svd.h5 t.h5:/templates/a/pca/component >n
    [ "$(cat n)" -eq 0 ]
}

@test "start: OMP_NUM_THREADS is the number of threads where -j is not given" {
    [ "$(nproc)" -gt 1 ] || skip "one processor"
    OMP_NUM_THREADS=1 threads_of rvs-template -q -s a:5050:5350:0.4:R=3000 -o t.h5 "$BATS_FILE_TMPDIR/library.h5" >n
    [ "$(cat n)" -eq 0 ]
    OMP_NUM_THREADS=1 threads_of rvs-template -q -j 2 -s a:5050:5350:0.4:R=3000 -o u.h5 "$BATS_FILE_TMPDIR/library.h5" >n
    [ "$(cat n)" -ge 1 ]
}

@test "start: results do not depend on the threads that BLAS is told to have" {
    for n in 1 2 7; do
        rm -f t.h5 svd.h5
        OPENBLAS_NUM_THREADS=$n rvs-template -q --reproducible -j 2 -s a:5050:5350:0.4:R=3000 -o t.h5 \
            "$BATS_FILE_TMPDIR/library.h5"
        OPENBLAS_NUM_THREADS=$n h5svd -q --reproducible -j 2 -o svd.h5 t.h5:/templates/a/pca/component
        mkdir $n && mv t.h5 svd.h5 $n
    done
    for n in 2 7; do
        cmp 1/t.h5 $n/t.h5
        cmp 1/svd.h5 $n/svd.h5
    done
}

@test "start: where BLAS is not installed, it is said what to install" {
    mkdir none && : >none/libopenblas.so.0
    fails_with 4 '*libopenblas.so.0: *: install libopenblas0*' env LD_LIBRARY_PATH="$PWD/none" \
        rvs-template -s a:5050:5350:0.4:R=3000 -o t.h5 "$BATS_FILE_TMPDIR/library.h5"
    LD_LIBRARY_PATH=$PWD/none rvs-template --version
    LD_LIBRARY_PATH=$PWD/none specpipe-info | grep '^openblas: not usable: .*libopenblas.so.0: .*install libopenblas0'
    mkdir half && : >half/liblapacke.so.3
    fails_with 4 '*liblapacke.so.3: *: install liblapacke*' env LD_LIBRARY_PATH="$PWD/half" \
        rvs-template -s a:5050:5350:0.4:R=3000 -o t.h5 "$BATS_FILE_TMPDIR/library.h5"
}

# A library of these names with all functions that a program looks for, which do nothing; it says how it was loaded, and
# as an OpenBLAS that is older than the processor it has no kernels for it unless $OPENBLAS_CORETYPE names them.
fake_blas() {
    local lib
    mkdir fake
    for lib in openblas.so.0:cblas_ lapacke.so.3:LAPACKE_; do
        {
            strings -n 8 "$SPX_BUILD/bin/specpipe-info" | grep -x "${lib#*:}[a-z_]*" | sort -u | sed 's/.*/void &(void) {}/'
            [ "$lib" = lapacke.so.3:LAPACKE_ ] || cat <<'EOF'
#include <stdio.h>
#include <stdlib.h>
static char *core(void) { char *c = getenv("OPENBLAS_CORETYPE"); return c ? c : "Prescott"; }
__attribute__((constructor)) static void loaded(void)
{
    fprintf(stderr, "loaded: %s %s\n", getenv("OPENBLAS_NUM_THREADS"), core());
    snprintf(name, sizeof name, "%s", core());
}
char *openblas_get_config(void) { return name; }
char *openblas_get_corename(void) { return name; }
int openblas_get_num_threads(void) { return 1; }
void openblas_set_num_threads(int n) { (void)n; }
EOF
        } | sed '1i static char name[64];' >fake.c
        cc -w -shared -fPIC -o "fake/lib${lib%:*}" fake.c
    done
}

@test "start: BLAS is loaded for one thread, and for a processor that is newer than it" {
    need_program cc strings
    unset OPENBLAS_CORETYPE # of the user
    fake_blas
    LD_LIBRARY_PATH=$PWD/fake specpipe-info >out 2>err
    if grep -q avx2 /proc/cpuinfo; then
        [ "$(head -1 err)" = "loaded: 1 Prescott" ]
        [[ $(tail -1 err) =~ ^loaded:\ 1\ (Haswell|SkylakeX)$ ]]
        grep -Ex 'openblas: (Haswell|SkylakeX)' out
    else
        [ "$(cat err)" = "loaded: 1 Prescott" ]
    fi
    OPENBLAS_CORETYPE=Prescott OPENBLAS_NUM_THREADS=5 LD_LIBRARY_PATH=$PWD/fake specpipe-info >out 2>err
    [ "$(cat err)" = "loaded: 1 Prescott" ]
    grep -x 'openblas: Prescott' out
}
