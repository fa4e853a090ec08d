# h5reduce: any dataset along any axis, in bounded memory, against awk; refusals.

load common

setup_file() {
    (cd "$BATS_FILE_TMPDIR" && mock_traces array.h5 && h5stack -q -s -0.2:0.2:0.04 array.h5 -o stack.h5)
}

# values FILE DATASET: its numbers, one a line.
values() {
    h5dump -A 0 -y -w 1 -m %.17g -d "$2" "$1" | sed -n 's/^ *\(-\{0,1\}[0-9][^ ,]*\),\{0,1\}$/\1/p'
}

@test "every operation along the last axis, against awk" {
    values "$BATS_FILE_TMPDIR/stack.h5" '/stack/stack[0,0;;3,830]' >three.txt
    local p
    for p in minimum maximum argmin argmax sum mean median; do
        h5reduce -q -p $p "$BATS_FILE_TMPDIR/stack.h5:/stack/stack" -o $p.h5
        h5check $p.h5
        h5ls -r $p.h5 | grep -q '/reduce/value *Dataset {121}'
        values $p.h5 /reduce/value | head -n 3 >$p.txt
    done
    h5dump -a /reduce/value/units mean.h5 | grep -q count
    h5dump -a /reduce/operation median.h5 | grep -q median
    [ "$(values sum.h5 /reduce/count | sort -u)" -eq 830 ]
    # the median is the mean of the two values in the middle
    local k
    for k in 1 2 3; do
        sed -n "$(((k - 1) * 830 + 1)),$((k * 830))p" three.txt >row.txt
        awk '{ s += $1; if (NR == 1 || $1 < min) { min = $1; a = NR - 1 } if (NR == 1 || $1 > max) { max = $1; b = NR - 1 } }
             END { printf "%.12g %.12g %.9g %.9g %d %d\n", min, max, s, s / NR, a, b }' row.txt >want.txt
        paste minimum.txt maximum.txt sum.txt mean.txt | sed -n ${k}p |
            awk -v i="$(values argmin.h5 /reduce/index | sed -n ${k}p)" -v j="$(values argmax.h5 /reduce/index | sed -n ${k}p)" \
                '{ printf "%.12g %.12g %.9g %.9g %d %d\n", $1, $2, $3, $4, i, j }' >have.txt
        diff want.txt have.txt
        sort -g row.txt | awk -v m="$(sed -n ${k}p median.txt)" 'NR == 415 { a = $1 } NR == 416 { d = (a + $1) / 2 - m } END { exit !(d * d < 1e-20) }'
    done
}

@test "memory is bounded, and the result does not depend on it" {
    local p axis
    for p in minimum argmax sum mean median; do
        for axis in 0 1 all; do
            h5reduce -q -p $p -a $axis "$BATS_FILE_TMPDIR/stack.h5" -o whole.h5 -f
            h5reduce -q -p $p -a $axis --max-mem 1M "$BATS_FILE_TMPDIR/stack.h5" -o pieces.h5 -f
            h5reduce -q -p $p -a $axis --max-mem 2M -j 1 "$BATS_FILE_TMPDIR/stack.h5" -o more.h5 -f
            h5check pieces.h5
            h5diff whole.h5 pieces.h5 /reduce
            h5diff whole.h5 more.h5 /reduce
        done
    done
}

@test "all axes of three, from the front and from the end; whole numbers; scalars" {
    h5reduce -q -p sum -a 0 "$BATS_FILE_TMPDIR/stack.h5:/shifts/shift" -o a.h5
    h5reduce -q -p sum -a -2 "$BATS_FILE_TMPDIR/stack.h5:/shifts/shift" -o b.h5
    h5diff a.h5 b.h5 /reduce
    values "$BATS_FILE_TMPDIR/stack.h5" /shifts/shift |
        awk '{ s[(NR - 1) % 9] += $1 } END { for (j = 0; j < 9; j++) print s[j] }' | diff - <(values a.h5 /reduce/value)
    h5reduce -q -p sum -a all "$BATS_FILE_TMPDIR/stack.h5:/shifts/shift" -o c.h5
    h5check c.h5
    h5dump -H -d /reduce/value c.h5 | grep -q 'SCALAR'
    [ "$(values c.h5 /reduce/value)" -eq "$(values a.h5 /reduce/value | awk '{ s += $1 } END { print s }')" ]
    # one dimension becomes none
    h5reduce -q -p maximum -a 0 "$BATS_FILE_TMPDIR/stack.h5:/stack/sample" -o d.h5
    [ "$(values d.h5 /reduce/value)" -eq "$(values "$BATS_FILE_TMPDIR/stack.h5" /stack/sample | tail -n 1)" ]
}

@test "NaN is an error, or left out" {
    cp "$BATS_FILE_TMPDIR/stack.h5" nan.h5
    h5edit nan.h5 set /stack/stack 832 nan set /stack/stack 831 inf
    fails_with 3 '*/stack/stack\[1,1\]: a value is infinite*--skip-nan*' h5reduce nan.h5 -o out.h5
    h5edit nan.h5 set /stack/stack 831 5
    fails_with 3 '*/stack/stack\[1,2\]: a value is NaN*' h5reduce -a 0 --max-mem 1M nan.h5 -o out.h5
    h5edit nan.h5 set /stack/stack 831 inf
    h5reduce -q --skip-nan nan.h5 -o mean.h5
    h5check mean.h5
    [ "$(values mean.h5 /reduce/count | sort -n | uniq -c | tr -s ' ' | paste -sd,)" = " 1 828, 120 830" ]
    h5edit nan.h5 fill /stack/stack nan
    run --separate-stderr h5reduce --skip-nan nan.h5 -o none.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *"121 results have no finite value"* ]]
    h5check none.h5
    [ "$(values none.h5 /reduce/count | sort -u)" -eq 0 ]
}

@test "pipes, threads and the same bytes" {
    h5reduce -q --reproducible -p median -j 1 "-:/stack/stack" <"$BATS_FILE_TMPDIR/stack.h5" | cat >one.h5
    h5reduce -q --reproducible -p median -j 3 "-:/stack/stack" <"$BATS_FILE_TMPDIR/stack.h5" | cat >two.h5
    h5diff one.h5 two.h5 /reduce
    h5reduce -q --reproducible -p median -j 3 "-:/stack/stack" <"$BATS_FILE_TMPDIR/stack.h5" | cat >three.h5
    cmp two.h5 three.h5
}

@test "input that has to be refused" {
    local f=$BATS_FILE_TMPDIR/stack.h5
    fails_with 3 '*missing*' h5reduce "$f:/no/such" -o out.h5
    fails_with 3 '*not a dataset*' h5reduce "$f:/stack" -o out.h5
    fails_with 3 '*no numbers*' h5reduce "$f:/provenance/000" -o out.h5
    fails_with 2 '*2 dimensions*' h5reduce -a 2 "$f" -o out.h5
    fails_with 2 '*--axis*' h5reduce -a x "$f" -o out.h5
    fails_with 2 '*--operation*' h5reduce -p mode "$f" -o out.h5
    fails_with 2 '*one dataset*' h5reduce "$f" "$f" -o out.h5
    fails_with 2 '*FILE:/path*' h5reduce "$BATS_FILE_TMPDIR/array.h5" -o out.h5
    fails_with 3 '*none.h5*' h5reduce none.h5:/x -o out.h5
    # without the slash
    fails_with 2 "*begins with a slash: $f:/stack/stack" h5reduce "$f:stack/stack" -o out.h5
    fails_with 3 '*none.h5:x: cannot open*' h5reduce none.h5:x -o out.h5
    cp "$f" odd:name.h5
    h5reduce -q odd:name.h5:/stack/stack -o odd.h5
    cp "$f" huge.h5
    h5edit huge.h5 set /stack/sample 0 9e18
    fails_with 3 '*beyond 2^53*' h5reduce huge.h5:/stack/sample -o out.h5
    cp "$f" empty.h5
    h5edit empty.h5 shape /stack/stack 0,5
    fails_with 3 '*is empty*' h5reduce empty.h5 -o out.h5
    fails_with 5 '*' h5reduce --device cuda:77 "$f" -o out.h5
}
