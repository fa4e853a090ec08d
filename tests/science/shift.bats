# Velocities of stars whose traces are not where the PSF says, with the figures that specx-shift(1) says: `make
# check-science`, some three minutes of one core. Not part of `make check`.
load ../common

# figures FILE LINE: numbers of a line of shift.sh in their order, without other words.
figures() { sed -n "s/^$2: //p" "$1" | grep -oE '[-+]?[0-9]+(\.[0-9]+)?' | tr '\n' ' '; }

# Of "LIGHT, PSF": stars, median of v - truth, mean of v - v(right), its error, median pull, error, scatter, error.
good() {
    figures "$1" "$2" | awk '{
        d = $3 < 0 ? -$3 : $3
        exit !($1 == 240 && d < 2.5 * $4 && $7 < 1.1 + $8 && $7 > 0.9 - 2 * $8) }'
}

@test "moved PSFs give the velocities of the right one, without and with a sky" {
    local arm light
    for arm in z r; do
        "$SPX_ROOT/tests/science/shift.sh" $arm 1:3 >"$arm"
        cat "$arm" >&3
        for light in none sky; do
            good "$arm" "$light, shifted"
            good "$arm" "$light, right"
            # 0.06 pixel are 1.3 km/s in z and 1.6 in r: the PSF that is not moved fails
            run good "$arm" "$light, wrong"
            [ "$status" -eq 1 ]
        done
        # columns to 0.003 pixel, widths across to 0.3 %
        awk '/^traces: x/ { exit !($4 < 0.003) }' "$arm"
        awk '/^traces: wx/ { exit !($4 < 0.003) }' "$arm"
        # rows to 0.006 pixel in z, 0.016 in r, where lines are few; three seeds tell rms of pulls to 0.3
        awk -v most="$([ $arm = z ] && echo 0.006 || echo 0.016)" '/^traces: y/ { exit !($4 < most) }' "$arm"
        awk '/^traces: (x|y|wx)/ { if ($NF > 1.2 + (/: y/ ? 0.3 : 0.1)) bad = 1 } END { exit bad }' "$arm"
        awk '/^zero point/ { d = $5 < 0 ? -$5 : $5; if (d > 3 * $7) bad = 1 } END { exit bad }' "$arm"
    done
}

@test "0.3 pixel, a wave over the slit" {
    "$SPX_ROOT/tests/science/shift.sh" z 1:3 --shift 0.3,0.3 >far
    "$SPX_ROOT/tests/science/shift.sh" z 1:3 --shift wave >slit
    cat far slit >&3
    for light in none sky; do
        good far "$light, shifted"
        good slit "$light, shifted"
    done
}
