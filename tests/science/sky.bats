# Accuracy of the sky subtraction, with the figures that specx-sky(1) says: `make check-science`, some four minutes of one
# core. Not part of `make check`.
load ../common

# good LINE OFF ON TOP: chi squared of held-out fibres of a line of sky.sh: off lines within OFF of 1 and on lines and in
# the brightest bins at most ON and TOP, with three statistical errors.
good() {
    awk -v line="$1" -v off="$2" -v on="$3" -v top="$4" 'BEGIN {
        print line
        sub(/.*: off /, "", line)
        split(line, x, " ")  # off +- error on value +- error top value +- error;
        exit !(x[1] > 1 - off - 3 * x[3] && x[1] < 1 + off + 3 * x[3] && x[5] < on + 3 * x[7] && x[9] < top + 3 * x[11])
    }'
}

# pulls LINE QUANTITY LEAST MOST: scatter of sky fibres and of others.
pulls() {
    awk -v line="$1" -v q="$2" -v least="$3" -v most="$4" 'BEGIN {
        match(line, "; " q " [^;]*")
        part = substr(line, RSTART + length(q) + 3, RLENGTH - length(q) - 3)
        gsub(",", "", part)
        split(part, x, " ")
        exit !(x[2] > least && x[2] < most && x[4] > least && x[4] < most)
    }'
}

# medians LINE QUANTITY MOST: of sky fibres and of others.
medians() {
    awk -v line="$1" -v q="$2" -v most="$3" 'BEGIN {
        match(line, "; " q " [^;]*")
        split(substr(line, RSTART + length(q) + 3, RLENGTH - length(q) - 3), x, /[ ,]+/)
        exit !(x[1] ^ 2 < most ^ 2 && x[3] ^ 2 < most ^ 2)
    }'
}

sky() { "$SPX_ROOT/tests/science/sky.sh" "$@"; }

wrong=(--shift wave --fiber-scatter 0.02)

@test "held-out fibres, right and wrong PSF, arms z and r" {
    local arm line
    for arm in z r; do
        good "$(sky $arm 1:10)" 0.02 1.06 1.06
        line=$(sky $arm 1:10 "${wrong[@]}")
        good "$line" 0.02 1.06 1.06
    done
}

# Traces that move along the arm alone: spots that are wider or beside their trace change the light that is extracted,
# which is no error of t. 300 sky fibres and 450 others: scatters are known to 0.07 and 0.06, of 5 sky fibres to 0.17.
@test "pulls of scales and shifts, with 30 and with 5 sky fibres" {
    local line hold
    printf '%s\n' 'y 2 0 0.04' 'y 3 0 -0.03' 'y 1 1 0.03' 'y fiber 0.01' >motion.txt
    for hold in 15 40; do
        line=$(sky z 1:10 --shift "$PWD/motion.txt" --fiber-scatter 0.02 -- --hold-out $hold)
        echo "$line"
        pulls "$line" t 0.75 1.25
        pulls "$line" d 0.75 1.35
        medians "$line" t 0.4
    done
}

@test "five sky fibres" {
    good "$(sky z 1:3 "${wrong[@]}" -- --hold-out 40)" 0.1 1.1 1.1
}

@test "a gradient of 5 %" {
    good "$(sky z 1:3 "${wrong[@]}" --sky-gradient 0.05,0 -- --gradient x)" 0.02 1.06 1.06
    good "$(sky z 1:3 "${wrong[@]}" -- --gradient x)" 0.02 1.06 1.06
    run good "$(sky z 1:3 "${wrong[@]}" --sky-gradient 0.05,0)" 0.02 1.06 1.06
    [ "$status" -eq 1 ]
}

@test "spots and wings that the PSF has not" {
    good "$(sky z 1:3 --spots moffat)" 0.05 1.1 1.2
    good "$(sky z 1:3 --tails 0.02)" 0.05 1.1 1.2
}
