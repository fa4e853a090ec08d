# specx-psf --flat: a start from a flat and an arc alone, against one from the right traces, and what has none. Accuracy of the
# start, and other shapes of images: tests/kernels/test_cold.c.

load common

setup_file() {
    local at=(--arm r --fibers 10 --wavelength "5850,6450" --shift "0.3,-0.2")
    mkdir "$BATS_FILE_TMPDIR/d" && cd "$BATS_FILE_TMPDIR/d" || return
    specx-sim -q "${at[@]}" --arc Ne,Kr -o arc.h5
    specx-sim -q "${at[@]}" --flat -o flat.h5
    specx-psf -q --start arc.h5 --trace-degree 4 --bundle-size 10 -o warm.h5 arc.h5
}

# Wavelength and dispersion are known to 40 Angstrom and 4 %.
cold=(--centre 6190 --dispersion 0.55 --trace-degree 4)

# near A B MOST: the light of the spots of two fits lies within MOST pixels. Traces alone may be 0.1 pixel apart, as chi
# squared hardly tells a place from GH-1-0 and GH-0-1.
near() {
    psf_places "$1" "$2" 5880:6400 | awk -v most="$3" '!($1 > 0 && $1 < most) { print; bad = 1 } END { exit bad || NR != 1 }'
}

@test "a start from flat and arc ends where one from the right traces does" {
    local d=$BATS_FILE_TMPDIR/d
    run -0 specx-psf --flat "$d/flat.h5" --bundles 10 "${cold[@]}" -o psf.h5 "$d/arc.h5"
    [[ "$output" == *"start: 10 fibres, 7."*"of 17 peaks of fibre "*" are lines"* ]]
    h5check psf.h5
    # the same light: a third of the error of single places, 0.003 pixel
    near psf.h5 "$d/warm.h5" 0.001
    h5dump -d /psf/status psf.h5 | grep -q '(0): 4, 4, 4, 4, 4, 4, 4, 4, 4, 4'
    # without the pattern, and without the lines of lamps that were off, whose flux is free; falling wavelengths are no solution
    specx-psf -q --flat "$d/flat.h5" "${cold[@]}" --bundle-size 10 --lamps Ne,Kr -o same.h5 "$d/arc.h5"
    near psf.h5 same.h5 0.001
    fails_with 3 '*no identification: of * peaks at most * are listed lines*' \
        specx-psf --flat "$d/flat.h5" --centre 6190 --dispersion -0.55 -o no.h5 "$d/arc.h5"
}

@test "lamps in arcs of their own" {
    local d=$BATS_FILE_TMPDIR/d
    for lamp in Ne Kr; do
        specx-sim -q --arm r --fibers 10 --wavelength 5850,6450 --arc $lamp -o $lamp.h5
    done
    specx-psf -q --flat "$d/flat.h5" --bundles 10 "${cold[@]}" -o psf.h5 Ne.h5 Kr.h5
    h5check psf.h5
}

@test "numbers of fibres: patterns, the side of the first one" {
    specx-sim -q --arm r --fibers 53 --wavelength 6100,6450 --flat -o flat.h5
    specx-sim -q --arm r --fibers 53 --wavelength 6100,6450 --arc Ne -o arc.h5
    local at=(--centre 6275 --dispersion 0.53 --trace-degree 3 --hermite-degree 2)
    specx-psf -q --flat flat.h5 --bundles 25x2,3 "${at[@]}" -o psf.h5 arc.h5
    h5dump -d /psf/bundle -s 24 -c 3 psf.h5 | grep -q '(24): 0, 1, 1'
    h5dump -d /psf/bundle -s 49 -c 4 psf.h5 | grep -q '(49): 1, 2, 2, 2'
    specx-psf -q --flat flat.h5 --bundles 3,25x2 --first-fiber right "${at[@]}" -o right.h5 arc.h5
    h5dump -d /psf/bundle -s 1 -c 4 right.h5 | grep -q '(1): 0, 0, 1, 1'
    h5dump -y -d /psf/xtrace -s 0,0 -c 1,1 psf.h5 | grep -o '[0-9.]*,$\|[0-9]*\.[0-9]*' >left
    h5dump -y -d /psf/xtrace -s 52,0 -c 1,1 right.h5 | grep -o '[0-9]*\.[0-9]*' >right
    paste left right | awk '{ if (($1 - $2) ^ 2 > 0.05 ^ 2) exit 1 }'
    # three of four fibres of the last bundle: the gap before it tells which
    run -0 specx-psf --flat flat.h5 --bundles 25x2,4 --bundle-range 0:1 "${at[@]}" -o dead.h5 arc.h5
    [[ "$output" == *"1 of 54 fibres have no light in the flat"* ]]
    h5dump -d /psf/bundle -s 49 -c 5 dead.h5 | grep -q '(49): 1, 2, 2, 2, 2'
}

@test "a spectrograph of one fibre" {
    local camera=(--arm r --camera "pitch=7,gap=12,dispersion=0.6,width=1.1" --bundles 1 --wavelength "6100,6450")
    specx-sim -q "${camera[@]}" --flat -o flat.h5
    specx-sim -q "${camera[@]}" --no-sky --arc Ne -o arc.h5
    local degrees=(--trace-degree 4)
    specx-psf -q --start arc.h5 "${degrees[@]}" -o warm.h5 arc.h5
    specx-psf -q --flat flat.h5 --bundles 1 --centre 6275 --dispersion 0.6 "${degrees[@]}" -o psf.h5 arc.h5
    h5check psf.h5
    psf_places psf.h5 warm.h5 6120:6430 | awk '{ print } !($1 > 0 && $1 < 0.001) { bad = 1 } END { exit bad || NR != 1 }'
}

@test "the pattern from the wrong side, and a flat of another camera" {
    local at=(--arm r --wavelength "6100,6450" --camera "pitch=6,gap=16" --bundles "3,7,5")
    local fit=(--centre 6275 --dispersion 0.53 --trace-degree 3 --hermite-degree 2 --lamps Ne)
    specx-sim -q "${at[@]}" --flat -o flat.h5
    specx-sim -q "${at[@]}" --arc Ne -o arc.h5
    run -0 specx-psf --flat flat.h5 --bundles 5,7,3 "${fit[@]}" -o wrong.h5 arc.h5
    [[ "$output" == *"2 of 15 fibres have no light in the flat; fewer with --bundles from the other side"*"--first-fiber right"* ]]
    run -0 specx-psf --flat flat.h5 --bundles 5,7,3 --first-fiber right "${fit[@]}" -o right.h5 arc.h5
    [[ "$output" != *"no light in the flat"* ]]
    # an arc that lies on the columns of some of the flat's fibres
    specx-sim -q "${at[@]:0:6}" --bundles "5,7,3" --flat -o other.h5
    fails_with 3 '*traces of --flat other.h5 have no lines in the arcs*give a flat and arcs of one camera*' \
        specx-psf --flat other.h5 --bundles 3,7,5 "${fit[@]}" -o no.h5 arc.h5
}

@test "--start: traces that have moved far are found first" {
    local d=$BATS_FILE_TMPDIR/d
    specx-sim -q --arm r --fibers 10 --wavelength 5850,6450 --arc Ne,Kr --shift 5,-12 -o far.h5
    run -0 specx-psf --start far.h5 --trace-degree 4 --bundle-size 10 -o psf.h5 far.h5
    [[ "$output" == *"the lines are +5.0 pixels in x and -12.0 in y from where --start has them: moved there"* ]]
    [[ "$output" == *"10 of 10 fibres fitted"* ]]
    h5check psf.h5
    h5table -q --csv -c XSHIFT,YSHIFT,CHI2 -t /psffit/fibre psf.h5 | tail -n +2 |
        awk -F, '!(($1 - 5) ^ 2 < 0.02 ^ 2 && ($2 + 12) ^ 2 < 0.02 ^ 2 && $3 < 1.2) { exit 1 }'
    # a bundle that is not asked for stays where it was
    specx-psf -q --start far.h5 --trace-degree 4 --bundle-size 5 --bundle-range 1:2 -o half.h5 far.h5
    h5table -q --csv -c STATUS,XSHIFT,YSHIFT -t /psffit/fibre half.h5 | tail -n +2 |
        awk -F, 'NR <= 5 && !($1 == 64 && $2 == 0 && $3 == 0) || NR > 5 && !(($2 - 5) ^ 2 < 0.05 ^ 2) { exit 1 }'
    for f in far half; do
        h5dump -y -d /psf/xtrace -s 0,0 -c 1,1 $f.h5 | grep -m 1 -o '^ *[0-9][0-9.]*$' >$f
    done
    paste far half | awk '!(($1 - $2) ^ 2 < 0.5 ^ 2) { exit bad = 1 } END { exit bad || NR != 1 }'
    # one without light moves as the others have, and of shifts with light in as many fibres (3 and -4.3) it is the lesser
    specx-sim -q --flat --fibers 20 --wavelength 5850,6450 --psf-output all.fits -o flat.h5
    specx-sim -q --arc Ne,Kr --psf all.fits --fibers 0:10 --shift 3,-12 -o dark.h5
    specx-psf -q --start all.fits --trace-degree 4 --bundle-size 10 -o psf.h5 -f dark.h5
    h5table -q --csv -c STATUS,XSHIFT,YSHIFT -t /psffit/fibre psf.h5 | tail -n 10 |
        awk -F, '!($1 == 64 && ($2 - 3) ^ 2 < 0.02 ^ 2 && ($3 + 12) ^ 2 < 0.02 ^ 2) { exit 1 }'
    # what a fit finds by itself is left to it
    run -0 specx-psf --start "$d/arc.h5" --trace-degree 4 --bundle-size 10 -o near.h5 "$d/arc.h5"
    [[ "$output" != *"moved there"* ]]
}

@test "--start: two traces that have changed places are named, and flagged" {
    local d=$BATS_FILE_TMPDIR/d
    specx-sim -q --arm r --fibers 10 --wavelength 5850,6450 --arc Ne,Kr --format hdf5 -o arc.h5
    edit_h5 changed.h5 "p = f['psf']
for name in 'xtrace', 'ytrace': p[name][3:5] = p[name][3:5][::-1]
p['coeff'][:, 3:5] = p['coeff'][:, 3:5][:, ::-1]" arc.h5
    run -0 specx-psf --start changed.h5 --trace-degree 4 --bundle-size 10 --hermite-degree 2 -o psf.h5 arc.h5
    [[ "$output" == *"changed.h5: traces (3, 4) have changed places in pairs: put them in order"* ]]
    h5table -q --csv -c STATUS -t /psffit/fibre psf.h5 | awk 'NR > 1 && (int($1 / 16) % 2 == 1) != (NR == 5 || NR == 6) { bad = 1 } END { exit bad || NR != 11 }'
}

@test "what has no start" {
    local d=$BATS_FILE_TMPDIR/d at=(--centre 6150 --dispersion 0.53)
    fails_with 2 '*--start PSF is needed*--flat*' specx-psf -o no.h5 "$d/arc.h5"
    fails_with 2 '*--start and --flat contradict*' \
        specx-psf --start "$d/arc.h5" --flat "$d/flat.h5" -o no.h5 "$d/arc.h5"
    fails_with 2 '*need --flat*' specx-psf --start "$d/arc.h5" --centre 6150 -o no.h5 "$d/arc.h5"
    fails_with 2 '*--flat needs --centre and --dispersion*' specx-psf --flat "$d/flat.h5" -o no.h5 "$d/arc.h5"
    fails_with 2 '*--bundles*25x20*' specx-psf --flat "$d/flat.h5" --bundles 10xx "${at[@]}" -o no.h5 "$d/arc.h5"
    fails_with 2 '*--lamps*Hg,Cd*' specx-psf --flat "$d/flat.h5" --lamps Ne,Th "${at[@]}" -o no.h5 "$d/arc.h5"
    fails_with 2 '*--dispersion: 0 *' specx-psf --flat "$d/flat.h5" --centre 6150 --dispersion 0 -o no.h5 "$d/arc.h5"
    fails_with 2 '*--fix shape and --flat*' specx-psf --flat "$d/flat.h5" --fix shape "${at[@]}" -o no.h5 "$d/arc.h5"
    # patterns that the flat does not have
    fails_with 3 '*the flat shows 10 traces of 40*' specx-psf --flat "$d/flat.h5" --bundles 20x2 "${at[@]}" -o no.h5 "$d/arc.h5"
    fails_with 3 '*10 traces of 11*more than one way*' \
        specx-psf --flat "$d/flat.h5" --bundles 11 "${at[@]}" -o no.h5 "$d/arc.h5"
    fails_with 3 '*the flat shows 0 traces: is it a flat*' specx-psf --flat "$d/arc.h5" "${at[@]}" -o no.h5 "$d/arc.h5"
    # no lines, saturated lines, other lamps, another part of the spectrum
    fails_with 3 '*--flat */flat.h5 */flat.h5: the arc shows 0 lines*is it an arc*' specx-psf --flat "$d/flat.h5" "${at[@]}" -o no.h5 "$d/flat.h5"
    specx-sim -q --arm r --fibers 10 --wavelength 5850,6450 --arc Ne,Kr --lamp-level 1e8 -o bright.h5
    fails_with 3 '*saturated or masked: take a shorter exposure*' \
        specx-psf --flat "$d/flat.h5" "${at[@]}" -o no.h5 bright.h5
    fails_with 3 '*the list has 0 near --centre*--lamps*' \
        specx-psf --flat "$d/flat.h5" --lamps Ar,Xe "${at[@]}" -o no.h5 "$d/arc.h5"
    fails_with 3 '*no*identification*' \
        specx-psf --flat "$d/flat.h5" --centre 6900 --dispersion 0.53 -o no.h5 "$d/arc.h5"
    # limits that leave the right dispersion out, from which the lines of one side can be followed
    specx-sim -q --arm r --fibers 10 --arc Ne,Ar,Kr,Hg,Cd -o wide.h5
    specx-sim -q --arm r --fibers 10 --flat -o wideflat.h5
    fails_with 3 '*no identification: of * peaks * are lines with *, but only * of the * in rows *: give --centre and --dispersion*' \
        specx-psf --flat wideflat.h5 --bundles 10 --centre 6680 --dispersion 0.6 -o no.h5 wide.h5
    # a flat of another camera
    specx-sim -q --arm z --fibers 10 --wavelength 8500,9100 --flat -o z.h5
    fails_with 3 '*flat has * pixels, the arc *' specx-psf --flat z.h5 "${at[@]}" -o no.h5 "$d/arc.h5"
    # a list in air
    printf 'Ne %s\n' 5852.488 5881.895 5944.834 5975.534 6030.000 6074.338 6096.163 6143.063 6163.594 6217.281 6266.495 \
        6304.789 6334.428 6382.992 6402.248 >air.txt
    fails_with 3 '*15 of 15 lines are at known wavelengths in air*--medium air*' \
        specx-psf --flat "$d/flat.h5" --lines air.txt "${at[@]}" -o no.h5 "$d/arc.h5"
    specx-psf -q --flat "$d/flat.h5" --lines air.txt --medium air "${cold[@]}" --bundles 10 -o psf.h5 "$d/arc.h5"
    # one lamp, and a list of 0.003 Angstrom, which are 0.006 pixel
    near psf.h5 "$d/warm.h5" 0.006
}

@test "a list in air of lamps with names of their own: their wavelengths are those of known ones" {
    local d=$BATS_FILE_TMPDIR/d at=(--flat "$BATS_FILE_TMPDIR/d/flat.h5" --centre 6150 --dispersion 0.53 --bundles 10)
    # Ne and Kr; a start without traces does not tell
    printf 'Qq %s\n' 5852.488 5870.916 5881.895 5944.834 5975.534 6029.997 6074.338 6096.163 6143.063 6163.594 6217.281 \
        6266.495 6304.789 6334.428 6382.991 6402.248 >air.txt
    run -0 specx-psf "${at[@]}" --trace-degree 4 --lines air.txt -o psf.h5 "$d/arc.h5"
    [[ "$output" == *"air.txt: 16 of 16 lines of elements that are not known here are where lines of known ones are in air, 0"*"--medium air"* ]]
    run -0 specx-psf "${at[@]}" --trace-degree 4 --lines air.txt --medium air -o right.h5 "$d/arc.h5"
    [[ "$output" != *"not known here"* ]]
}

@test "a list whose lines no known lamp has: the medium is not verified, which the product says" {
    local d=$BATS_FILE_TMPDIR/d
    printf 'Ne %s\n' 5854.110 5883.525 5946.481 6031.667 6076.019 6097.851 6144.763 6219.001 6306.533 6404.018 >neon.txt
    run -0 specx-psf --start "$d/arc.h5" --trace-degree 3 --lines neon.txt -o psf.h5 "$d/arc.h5"
    [[ "$output" != *"no line of a known lamp"* ]]
    h5table --provenance psf.h5 | grep -q 'vacuum, as known lines are'
    # the same arc as that of another lamp, 300 km/s away
    awk '{ printf("Qq %.3f\n", $2 * 1.001) }' neon.txt >own.txt
    run -0 specx-psf --start "$d/arc.h5" --trace-degree 3 --lines own.txt -f -o psf.h5 "$d/arc.h5"
    [[ "$output" == *"own.txt: no line of a known lamp tells that its wavelengths are in vacuum"*"--medium"* ]]
    h5table --provenance psf.h5 | grep -q 'vacuum, not verified'
    run -0 specx-psf --start "$d/arc.h5" --trace-degree 3 --lines own.txt --medium vacuum -f -o psf.h5 "$d/arc.h5"
    [[ "$output" != *"no line of a known lamp"* ]]
    h5table --provenance psf.h5 | grep -q 'vacuum, as --medium says'
}

@test "few lines: the degree falls, which is said" {
    local d=$BATS_FILE_TMPDIR/d
    printf 'Ne %s\n' 5854.110 5883.525 5946.481 6031.667 6076.019 6097.851 6144.763 6219.001 6306.533 6404.018 >few.txt
    run -0 specx-psf --flat "$d/flat.h5" --bundles 10 --lines few.txt --centre 6150 --dispersion +0.53 -o psf.h5 "$d/arc.h5"
    [[ "$output" == *"10 lines a fibre: the wavelengths of the start are polynomials of degree 4, not 5"* ]]
}

# the same traces and spots over other ranges, of which the fit makes one again
@test "--start: traces with ranges of their own, where each has most of that of all" {
    local from fit=(--trace-degree 4 --bundle-size 10)
    specx-sim -q --fibers 10 --wavelength 5850,6450 --arc Ne,Kr --format hdf5 -o arc.h5
    cp arc.h5 own.h5
    psf_edit own.h5 orders 5790:6480,5830:6510,5790:6510
    for from in arc own; do
        specx-psf -q --start $from.h5 --hermite-degree 4 "${fit[@]}" -o $from-fit.h5 arc.h5
        specx-psf -q --start $from.h5 --fix shape "${fit[@]}" -o $from-fixed.h5 arc.h5
    done
    h5check own-fit.h5 own-fixed.h5
    [ "$(psf_places arc-fit.h5 own-fit.h5 5870:6430 | awk '{ print $1 < 1e-5 }')" = 1 ]
    [ "$(psf_places arc-fixed.h5 own-fixed.h5 5870:6430 | awk '{ print $1 < 1e-5 }')" = 1 ]
    cp arc.h5 orders.h5
    psf_edit orders.h5 orders 5790:6300,5850:6510
    fails_with 3 '*range of wavelengths of its own*the fit of PSFs cannot take*' specx-psf --start orders.h5 "${fit[@]}" -o no.h5 arc.h5
}
