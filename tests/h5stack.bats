# h5stack: stacks and maxima of the traces of an array, geometry, accumulation, and refusals.

load common

setup_file() {
    (cd "$BATS_FILE_TMPDIR" && mock_traces --shifts array.h5 && mock_traces -d --shifts double.h5)
}

# damage NAME COMMAND...: copy of the array with these changes (h5edit).
damage() {
    cp "$BATS_FILE_TMPDIR/array.h5" "$1" && h5edit "$@"
}

# values FILE DATASET: its numbers, one a line.
values() {
    h5dump -A 0 -y -w 1 -m %.9g -d "$2" "$1" | sed -n 's/^ *\(-\{0,1\}[0-9][^ ,]*\),\{0,1\}$/\1/p'
}

@test "every method gives a valid product" {
    local m
    for m in stack max argmax; do
        h5stack -q -m $m "$BATS_FILE_TMPDIR/array.h5" -o $m.h5
        h5check $m.h5
        h5dump -d /provenance/000 $m.h5 | grep -q "method=$m"
    done
    h5dump -H -d /stack/stack stack.h5 | grep -q 'F32LE'
    h5dump -a /stack/stack/units stack.h5 | grep -q count
    # the window: offset, shift and length of nine traces
    [ "$(values stack.h5 /stack/sample | head -n 1)" -eq -16 ]
}

@test "the aligned pulse stands out, where it should" {
    h5stack -q -m max "$BATS_FILE_TMPDIR/array.h5" -o max.h5
    values max.h5 /stack/maximum | awk 'NR == 1 { one = $1 } NR == 2 { exit !($1 > 0.98 && $1 < 1.02 && one < 0.6) }'
    [ "$(values max.h5 /stack/maximum_sample | sed -n 2p)" -eq 300 ]
    h5stack -q -m argmax "$BATS_FILE_TMPDIR/array.h5" -o argmax.h5
    # sample 300 of a window that begins at -16
    [ "$(values argmax.h5 /stack/best_shift | sed -n 317p)" -eq 1 ]
}

@test "the slowness of a wave is found on a grid, in float32 and float64" {
    local f
    for f in array double; do
        h5stack -q -m max -s -0.2:0.2:0.02 "$BATS_FILE_TMPDIR/$f.h5" -o beam.h5 -f
        h5check beam.h5
        paste <(values beam.h5 /stack/maximum) <(values beam.h5 /shifts/grid | paste - -) |
            sort -g | tail -n 1 | awk '{ exit !($1 > 0.98 && $2 == 0.1 && $3 == -0.06) }'
    done
    h5dump -H -d /stack/maximum beam.h5 | grep -q F64LE
}

@test "grids by slowness and by velocity and azimuth agree" {
    h5stack -q -s 0.1 --slowness-north 0 "$BATS_FILE_TMPDIR/array.h5" -o slowness.h5
    h5stack -q --velocity 10 --azimuth 90 "$BATS_FILE_TMPDIR/array.h5" -o velocity.h5
    h5diff slowness.h5 velocity.h5 /stack
    h5diff slowness.h5 velocity.h5 /shifts/shift
    h5stack -q --velocity 5:10:5 "$BATS_FILE_TMPDIR/array.h5" -o circle.h5
    h5ls -r circle.h5 | grep -q '/shifts/grid *Dataset {144, 2}'
}

@test "positions and sampling rate from outside" {
    # those that the traces have, moved: only differences count
    values "$BATS_FILE_TMPDIR/array.h5" /traces/position | paste - - |
        awk 'BEGIN { print "# east north" } { print $1 + 100, $2 - 7, " # station", NR } END { print "" }' >stations.txt
    h5stack -q -s -0.1:0.1:0.03 "$BATS_FILE_TMPDIR/array.h5" -o a.h5
    h5stack -q -s -0.1:0.1:0.03 -g stations.txt --sampling-rate 50 "$BATS_FILE_TMPDIR/array.h5" -o b.h5
    h5diff a.h5 b.h5 /stack
    h5stack -q -s -0.1:0.1:0.03 -g stations.txt --sampling-rate 10 "$BATS_FILE_TMPDIR/array.h5" -o c.h5
    run ! h5diff -q a.h5 c.h5 /shifts/shift
    echo 1 2 >>stations.txt
    fails_with 3 '*10 stations*9 traces*' h5stack -s 0 -g stations.txt "$BATS_FILE_TMPDIR/array.h5" -o out.h5
    echo 1 2 3 >bad.txt
    fails_with 3 '*bad.txt:1: is not a position*' h5stack -s 0 -g bad.txt "$BATS_FILE_TMPDIR/array.h5" -o out.h5
    fails_with 3 '*none.txt*' h5stack -s 0 -g none.txt "$BATS_FILE_TMPDIR/array.h5" -o out.h5
}

@test "a window is a slice of the whole" {
    h5stack -q "$BATS_FILE_TMPDIR/array.h5" -o all.h5
    h5stack -q --t0 -10 --length 100 "$BATS_FILE_TMPDIR/array.h5" -o part.h5
    h5check part.h5
    cmp <(values all.h5 '/stack/stack[0,6;;1,100]') <(values part.h5 '/stack/stack[0,0;;1,100]')
    h5stack -q --t0=-10 "$BATS_FILE_TMPDIR/array.h5" -o begin.h5
    h5ls -r begin.h5 | grep -q '/stack/stack *Dataset {2, 653}'
    fails_with 2 '*window is empty*' h5stack --t0 5000 "$BATS_FILE_TMPDIR/array.h5" -o out.h5
    fails_with 2 '*--length*' h5stack --length 0 "$BATS_FILE_TMPDIR/array.h5" -o out.h5
}

@test "accumulation: five times more is six times as much" {
    h5stack -q "$BATS_FILE_TMPDIR/array.h5" -o 1.h5
    local i
    for i in 2 3 4 5 6; do
        h5stack -q "$BATS_FILE_TMPDIR/array.h5" --add $((i - 1)).h5 -o $i.h5
    done
    h5check 6.h5
    paste <(values 1.h5 /stack/stack) <(values 6.h5 /stack/stack) |
        awk '{ d = 6 * $1 - $2; if (d * d > 1e-10) exit bad = 1; n++ } END { exit bad || n != 1318 }'
    fails_with 3 '*--length as they were*' h5stack --length 100 --add 1.h5 "$BATS_FILE_TMPDIR/array.h5" -o out.h5
    fails_with 3 '*--t0 as it was*' h5stack --t0 -40 --length 659 --add 1.h5 "$BATS_FILE_TMPDIR/array.h5" -o out.h5
    fails_with 3 '*float32*float64*' h5stack --add 1.h5 "$BATS_FILE_TMPDIR/double.h5" -o out.h5
    fails_with 2 '*--add*' h5stack -m max --add 1.h5 "$BATS_FILE_TMPDIR/array.h5" -o out.h5
    h5stack -q -m max "$BATS_FILE_TMPDIR/array.h5" -o max.h5
    fails_with 3 '*holds no stacks*' h5stack --add max.h5 "$BATS_FILE_TMPDIR/array.h5" -o out.h5
}

@test "the same for any number of threads, and through pipes" {
    local m
    for m in stack max argmax; do
        h5stack -q --reproducible -m $m -j 1 -s -0.2:0.2:0.01 "$BATS_FILE_TMPDIR/array.h5" -o one.h5 -f
        h5stack -q --reproducible -m $m -j 3 -s -0.2:0.2:0.01 <"$BATS_FILE_TMPDIR/array.h5" | cat >three.h5
        h5diff one.h5 three.h5 /stack
        h5stack -q --reproducible -m $m -j 3 -s -0.2:0.2:0.01 <"$BATS_FILE_TMPDIR/array.h5" | cat >again.h5
        cmp three.h5 again.h5
    done
}

@test "traces and shifts from two files" {
    damage traces.h5 delete /shifts
    damage shifts.h5 delete /traces
    h5stack -q traces.h5 shifts.h5 -o a.h5
    h5stack -q "$BATS_FILE_TMPDIR/array.h5" -o b.h5
    h5diff a.h5 b.h5 /stack
    # without weights all are 1: the stack is nine times the mean
    h5edit shifts.h5 delete /shifts/weight
    h5stack -q -m max traces.h5 shifts.h5 -o sum.h5
    values sum.h5 /stack/maximum | awk 'NR == 2 { exit !($1 > 8.8 && $1 < 9.2) }'
    fails_with 3 '*no shifts*' h5stack traces.h5 -o out.h5
    fails_with 3 '*no traces*' h5stack shifts.h5 -o out.h5
    fails_with 2 '*holds traces again*' h5stack traces.h5 "$BATS_FILE_TMPDIR/array.h5" -o out.h5
}

@test "input that has to be refused" {
    damage shape.h5 shape /shifts/shift 2,9
    fails_with 3 '*/shifts/shift: is float64, should be int32*' h5stack shape.h5 -o out.h5
    damage weight.h5 shape /shifts/weight 2,9
    fails_with 3 '*/shifts/weight: is float64, should be float32*' h5stack weight.h5 -o out.h5
    damage offset.h5 shape /traces/offset 9
    fails_with 3 '*/traces/offset: is float64*int32*' h5stack offset.h5 -o out.h5
    # an offset or shift that is absurd would ask for gigabytes, and for hours
    damage far.h5 set /traces/offset 1 2000000000
    fails_with 3 '*spread*--t0 and --length*' h5stack far.h5 -o out.h5
    damage far.h5 set /shifts/shift 1 -2000000000
    fails_with 3 '*spread*--t0 and --length*' h5stack far.h5 -o out.h5
    fails_with 3 '*do not fit into memory*--t0 and --length*' h5stack --t0 0 --length 100000000000 "$BATS_FILE_TMPDIR/array.h5" -o out.h5
    fails_with 3 '*do not fit into memory*--t0 and --length*' h5stack --max-mem 16M --t0 0 --length 100000000 "$BATS_FILE_TMPDIR/array.h5" -o out.h5
    [ -z "$(find . -name '*out.h5*')" ]
    damage nan.h5 set /traces/data 77 nan
    fails_with 3 'h5stack: nan.h5:/traces/data: holds NaN*' h5stack nan.h5 -o out.h5
    damage inf.h5 set /shifts/weight 3 inf
    fails_with 3 'h5stack: inf.h5:/shifts/weight: holds NaN*' h5stack inf.h5 -o out.h5
    damage sum.h5 delete /shifts/weight
    h5stack -q sum.h5 -o earlier.h5
    h5edit earlier.h5 set /stack/stack 5 nan
    fails_with 3 'h5stack: earlier.h5:/stack/stack: holds NaN*' h5stack --add earlier.h5 sum.h5 -o out.h5
    damage place.h5 set /traces/position 5 nan
    fails_with 3 'h5stack: */traces/position: that of trace 2 is not finite*' h5stack -s 0.1 place.h5 -o out.h5
    damage start.h5 set /traces/start 3 9000
    fails_with 3 '*/traces/start*' h5stack start.h5 -o out.h5
    damage end.h5 set /traces/start 9 5299
    fails_with 3 '*/traces/start*' h5stack end.h5 -o out.h5
    damage few.h5 shape /shifts/shift 2,8
    fails_with 3 '*' h5stack few.h5 -o out.h5
    damage huge.h5 fill /traces/data 3e38
    h5edit huge.h5 fill /shifts/weight 2
    fails_with 3 '*range of float32*' h5stack huge.h5 -o out.h5
    fails_with 3 '*empty*' h5stack - -o out.h5 </dev/null
    fails_with 5 '*' h5stack --device cuda:77 "$BATS_FILE_TMPDIR/array.h5" -o out.h5
}

@test "grids that make no sense" {
    local a=$BATS_FILE_TMPDIR/array.h5
    fails_with 2 '*--slowness*' h5stack -s 1:0:0.1 "$a" -o out.h5
    fails_with 2 '*--slowness*STEP above 0*' h5stack -s 0:1:0 "$a" -o out.h5
    fails_with 2 '*--slowness-north*' h5stack -s 0 --slowness-north 1:2 "$a" -o out.h5
    fails_with 2 '*give one*' h5stack -s 0 --velocity 3 "$a" -o out.h5
    fails_with 2 '*positive*' h5stack --velocity 0:3:1 "$a" -o out.h5
    local option
    for option in --geometry=stations.txt --slowness-north=0:1:0.1 --azimuth=0:90:10 --sampling-rate=10; do
        fails_with 2 '*need a grid*' h5stack "$option" "$a" -o out.h5
    done
    fails_with 2 '*goes with --slowness*' h5stack --velocity 3 --slowness-north 0 "$a" -o out.h5
    fails_with 2 '*--azimuth with --velocity*' h5stack -s 0 --azimuth 0:90:10 "$a" -o out.h5
    fails_with 3 '*positions in km*' h5stack -s 1e9 "$a" -o out.h5
    damage nowhere.h5 delete /traces/position
    fails_with 3 '*no positions*' h5stack -s 0 nowhere.h5 -o out.h5
    damage norate.h5 delete-attr /traces sampling_rate
    fails_with 3 '*no sampling rate*' h5stack -s 0 norate.h5 -o out.h5
}
