# h5svd: decompositions that add up to their matrix again, both methods, weights, pictures, and input that it has to
# refuse. What a decomposition is, tests/kernels/test_svd.c checks.

load common

setup_file() {
    (cd "$BATS_FILE_TMPDIR" && burgers -q --cells 64 --viscosity 0.05 --steps 100 --modes 0 -o b.h5 &&
        h5svd -q b.h5 -o all.h5)
}

# values FILE DATASET: its numbers, one a line.
values() {
    h5dump -A 0 -y -w 1 -m %.17g -d "$2" "$1" | sed -n 's/^ *\(-\{0,1\}[0-9][^ ,]*\),\{0,1\}$/\1/p'
}

# close FILE FILE DATASET TOLERANCE: equal within a tolerance.
close() {
    paste <(values "$1" "$3") <(values "$2" "$3") |
        awk -v tol="$4" '{ d = $1 - $2; bad += d > tol || d < -tol || NF != 2 } END { exit bad || NR == 0 }'
}

@test "the product is valid, and adds up to the matrix" {
    local b=$BATS_FILE_TMPDIR/b.h5 d=$BATS_FILE_TMPDIR/all.h5
    h5check "$d"
    h5ls -r "$d" | grep -q '/svd/u *Dataset {100, 64}'
    [ "$(h5dump -A 0 -y -d /svd/energy[63] "$d" | grep -c '^ *1$')" -eq 1 ]
    # u diag(s) v
    { values "$d" /svd/s && values "$d" /svd/u && values "$d" /svd/v && values "$b" /burgers/snapshot; } |
        awk 'NR <= 64 { s[NR - 1] = $1; next }
             NR <= 64 + 6400 { u[NR - 65] = $1; next }
             NR <= 64 + 6400 + 4096 { v[NR - 65 - 6400] = $1; next }
             { a[n++] = $1 }
             END {
                 for (i = 0; i < 100; i += 9)
                     for (j = 0; j < 64; j++) {
                         x = a[i * 64 + j]
                         for (k = 0; k < 64; k++)
                             x -= u[i * 64 + k] * s[k] * v[k * 64 + j]
                         if (x > 1e-12 || x < -1e-12) exit 1
                     }
                 exit n != 6400
             }'
}

@test "a dataset can be named, found, or piped" {
    local b=$BATS_FILE_TMPDIR/b.h5
    h5svd -q "$b:/burgers/snapshot" -o a.h5
    h5diff a.h5 "$BATS_FILE_TMPDIR/all.h5" /svd
    h5svd -q <"$b" | cat >c.h5
    h5diff a.h5 c.h5 /svd
    h5svd -q --reproducible -j 1 -:/burgers/snapshot <"$b" | cat >d.h5
    h5svd -q --reproducible -j 1 -:/burgers/snapshot <"$b" | cat >e.h5
    cmp d.h5 e.h5
    h5svd -q --reproducible -j 3 "$b" -o f.h5
    h5diff d.h5 f.h5 /svd
}

@test "rank: the leading modes of all; randomised: nearly the same" {
    local b=$BATS_FILE_TMPDIR/b.h5
    h5svd -q -k 5 "$b" -o five.h5
    h5check five.h5
    diff <(values five.h5 /svd/s) <(values "$BATS_FILE_TMPDIR/all.h5" /svd/s | head -n 5)
    diff <(values five.h5 /svd/energy) <(values "$BATS_FILE_TMPDIR/all.h5" /svd/energy | head -n 5)
    h5svd -q -k 5 -m randomised "$b" -o random.h5
    h5check random.h5
    close five.h5 random.h5 /svd/s 1e-9
    close five.h5 random.h5 '/svd/v[0,0;;3,64]' 1e-6
    close five.h5 random.h5 /svd/energy 1e-9
    h5svd -q -k 5 -m randomised --seed 3 --power 0 --oversample 2 "$b" -o rough.h5
    run ! h5diff -q random.h5 rough.h5 /svd/s
    close five.h5 rough.h5 /svd/s 0.1
}

@test "center, subtract, weights" {
    local b=$BATS_FILE_TMPDIR/b.h5
    h5svd -q --center "$b" -o center.h5
    h5check center.h5
    h5reduce -q -a 0 "$b" -o mean.h5
    paste <(values center.h5 /svd/mean) <(values mean.h5 /reduce/value) |
        awk '{ d = $1 - $2; if (d > 1e-14 || d < -1e-14) exit bad = 1 } END { exit bad || NR != 64 }'
    # nothing is left of a matrix without itself
    h5svd -q --subtract "$b:/burgers/snapshot" "$b" -o nothing.h5
    h5check nothing.h5
    [ "$(values nothing.h5 /svd/s | sort -u)" = 0 ]
    # equal weights of 4 double everything
    cp "$b" w.h5
    h5edit w.h5 fill /burgers/time 4 fill /burgers/x 0.25
    h5svd -q -w w.h5:/burgers/time "$b" -o four.h5
    h5check four.h5
    paste <(values four.h5 /svd/s) <(values "$BATS_FILE_TMPDIR/all.h5" /svd/s) |
        awk '{ d = $1 - 2 * $2; if (d > 1e-11 || d < -1e-11) exit 1 }'
    h5svd -q -w w.h5:/burgers/time --column-weights w.h5:/burgers/x "$b" -o one.h5
    h5check one.h5
    close one.h5 "$BATS_FILE_TMPDIR/all.h5" /svd/s 1e-11
    h5ls -r one.h5 | grep -q '/svd/column_weight *Dataset {64}'
}

@test "pictures" {
    need_program gnuplot
    local b=$BATS_FILE_TMPDIR/b.h5
    h5svd -q --plot p.png "$b" -o p.h5
    [ "$(head -c 4 p.png | tail -c 3)" = PNG ]
    h5svd -q --plot p.svg "$b" -o q.h5
    grep -q '</svg>' p.svg
    # an existing picture is kept, and nothing else is written
    fails_with 4 '*p.svg*' h5svd -q --plot p.svg "$b" -o r.h5
    fails_with 2 '*.png*' h5svd -q --plot p.gif "$b" -o r.h5
}

@test "without gnuplot there is no picture and no output" {
    mkdir bin
    fails_with 4 '*gnuplot*installed*' env PATH="$PWD/bin" "$SPX_BUILD/bin/h5svd" -q --plot p.png "$BATS_FILE_TMPDIR/b.h5" -o r.h5
}

@test "input that has to be refused" {
    local b=$BATS_FILE_TMPDIR/b.h5
    fails_with 3 '*1 dimensions*' h5svd "$b:/burgers/x" -o out.h5
    fails_with 3 '*missing*' h5svd "$b:/burgers/y" -o out.h5
    fails_with 2 '*FILE:/path*' h5svd "$BATS_FILE_TMPDIR/all.h5" -o out.h5
    fails_with 2 '*--rank*' h5svd -m randomised "$b" -o out.h5
    for option in --oversample=3 --power=2 --seed=4; do
        fails_with 2 '*--method randomised only*' h5svd "$option" "$b" -o out.h5
    done
    fails_with 2 '*one dataset*' h5svd "$b" "$b" -o out.h5
    fails_with 3 '*each of 100 rows*' h5svd -w "$b:/burgers/x" "$b" -o out.h5
    fails_with 3 '*each of 64 columns*' h5svd --column-weights "$b:/burgers/time" "$b" -o out.h5
    fails_with 3 '*100 x 64 is wanted*' h5svd --subtract "$BATS_FILE_TMPDIR/all.h5:/svd/v" "$b" -o out.h5
    cp "$b" bad.h5
    h5edit bad.h5 set /burgers/snapshot 65 nan set /burgers/time 3 -1
    fails_with 3 '*/burgers/snapshot: row 1, column 1*' h5svd bad.h5 -o out.h5
    fails_with 3 '*bad.h5:/burgers/time: weight 3 of the rows is -1*' h5svd -w bad.h5:/burgers/time "$b" -o out.h5
    h5edit bad.h5 fill /burgers/snapshot 1.5e308
    fails_with 3 '*/burgers/snapshot: *beyond the range*' h5svd bad.h5 -o out.h5
    fails_with 3 '*/burgers/snapshot: *beyond the range*' h5svd -m randomised -k 2 bad.h5 -o out.h5
    h5edit bad.h5 shape /burgers/snapshot 0,3
    fails_with 3 '*cannot be decomposed*' h5svd bad.h5 -o out.h5
    fails_with 5 '*' h5svd --device cuda:77 "$b" -o out.h5
}

@test "rows: those that are chosen, less what has as many" {
    local b=$BATS_FILE_TMPDIR/b.h5
    h5svd -q --rows 10:40 "$b" -o slice.h5
    h5check slice.h5
    h5ls -r slice.h5 | grep -q '/svd/u *Dataset {30, 30}'
    h5svd -q -r 10:20,20,21:40 "$b" -o same.h5
    h5diff slice.h5 same.h5 /svd
    # the rows of a matrix less themselves are nothing; all rows are an offer to choose from
    fails_with 3 '*' h5svd -q --rows 10:40 --subtract "$BATS_FILE_TMPDIR/all.h5:/svd/v" "$b" -o out.h5
    h5svd -q --rows 5,7 --subtract "$b:/burgers/snapshot" "$b" -o zero.h5
    [ "$(values zero.h5 /svd/s | sort -u)" = 0 ]
    # also when as many are chosen as there are, in another order
    h5svd -q --rows 50:100,0:50 --subtract "$b:/burgers/snapshot" "$b" -o zero-2.h5
    [ "$(values zero-2.h5 /svd/s | sort -u)" = 0 ]
    fails_with 2 '*no row 100*' h5svd -q --rows 3,100 "$b" -o out.h5
    fails_with 2 '*--rows*' h5svd -q --rows 3,x "$b" -o out.h5
    fails_with 2 '*--rows*' h5svd -q --rows 3,,4 "$b" -o out.h5
    fails_with 2 '*--rows*' h5svd -q --rows 90:200 "$b" -o out.h5
}
