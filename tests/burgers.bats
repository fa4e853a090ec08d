# burgers: the published run, its decomposition and picture; refusal of invalid options. The order of the scheme,
# and values to the last digit, are checked by tests/kernels/test_burgers.c.

load common

# values FILE DATASET: its numbers, one a line.
values() {
    h5dump -A 0 -y -w 1 -m %.12g -d "$2" "$1" | sed -n 's/^ *\(-\{0,1\}[0-9][^ ,]*\),\{0,1\}$/\1/p'
}

@test "the published run" {
    burgers -q --boundary lagged -o lagged.h5
    h5check lagged.h5
    # its log prints 0.0733873
    values lagged.h5 '/burgers/snapshot[2000,9;;1,1]' | awk '{ exit !(sprintf("%.7f", $1) == "0.0733873") }'
    burgers -q -o now.h5
    h5check now.h5
    values now.h5 '/burgers/snapshot[2000,9;;1,1]' | awk '{ exit !(sprintf("%.9f", $1) == "0.073393379") }'
    [ "$(values now.h5 /svd/s | head -n 3 | awk '{ printf "%.6f ", $1 }')" = "471.259287 104.637607 26.864574 " ]
    [ "$(values now.h5 /svd/energy | head -n 3 | awk '{ printf "%.6f ", $1 }')" = "0.949730 0.996553 0.999639 " ]
    h5ls -r now.h5 | grep -q '/svd/v *Dataset {10, 256}'
    h5dump -a /burgers/boundary lagged.h5 | grep -q lagged
}

@test "its decomposition is that of h5svd" {
    burgers -q --modes 4 -o b.h5
    h5svd -q -k 4 b.h5 -o svd.h5
    h5diff b.h5 svd.h5 /svd/s
    h5diff b.h5 svd.h5 /svd/u
    h5diff b.h5 svd.h5 /svd/v
    h5diff b.h5 svd.h5 /svd/energy
}

@test "snapshots, modes and threads as asked for" {
    burgers -q --cells 50 --steps 40 --every 20 --modes 0 -o b.h5
    h5check b.h5
    h5ls -r b.h5 | grep -q '/burgers/snapshot *Dataset {2, 50}'
    run ! h5ls b.h5/svd
    [ "$(values b.h5 /burgers/time | tail -n 1)" = 0.04 ]
    burgers -q --reproducible -j 1 | cat >one.h5
    burgers -q --reproducible -j 3 | cat >three.h5
    h5diff one.h5 three.h5 /burgers
    h5diff one.h5 three.h5 /svd
    burgers -q --reproducible -j 3 | cat >again.h5
    cmp three.h5 again.h5
}

@test "a picture" {
    need_program gnuplot
    burgers -q --plot b.png -o b.h5
    [ "$(head -c 4 b.png | tail -c 3)" = PNG ]
    burgers -q --modes 0 --plot b.svg -o c.h5
    grep -q '</svg>' b.svg
}

@test "options that make no sense" {
    fails_with 2 '*beyond all bounds*--dt*' burgers --dt 0.1 -o out.h5
    fails_with 2 '*no multiple*' burgers --every 2 -o out.h5
    fails_with 2 '*there is no input*' burgers x.h5 -o out.h5
    fails_with 2 '*--cells*' burgers --cells 2 -o out.h5
    fails_with 2 '*--boundary*' burgers --boundary open -o out.h5
    fails_with 4 '*memory*' burgers --max-mem 1M -o out.h5
    fails_with 4 '*of 1.0 KiB held*' burgers --max-mem 1K -o out.h5
    fails_with 5 '*' burgers --device cuda:77 -o out.h5
}
