# An instrument that is like no other, 120 fibres (specpipe-instrument(7)): velocities of the stars of several exposures.
# INSTRUMENT_SEEDS="1 2" for other exposures.
load ../common
load ../instrument
load common

@test "a made-up instrument: velocities and their errors" {
    local seed
    calibrate 9,12,7,14,11,18,6,13,16,14
    make_star_templates
    for seed in ${INSTRUMENT_SEEDS:-6 7 8 9 10 11}; do
        measure_stars "$seed" >one
        tell_pulls "made-up instrument, exposure $seed" <one
        cat one >>all
    done
    tell_pulls "made-up instrument" <all
    awk '{ exit !($1 * $1 < (0.05 + 2 * $2)^2 && $3 > 0.9 - 2 * $4 && $3 < 1.1 + 2 * $4) }' pulls
}
