# rvs-fit --components 2: double-lined stars.
load common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    specx-sim -q --library stars --step 0.1 --wavelength 5030,5580 --axis logg=2,3,4,5 --axis feh=-1,-0.5,0 \
        --axis alpha=0,0.4 --axis teff=4000,4500,5000,5500,6000,6500
    fits2h5 -q stars | rvs-template -q --library-resolution none --setup r:5100:5500:0.4:FWHM=1.526 -o templates.h5
    words=(teff=4900:6000 feh=-0.8:-0.1 logg=3:4.5)
    sim_epochs 60 1 1 pairs.h5 sn=50:50.1 second=0.4:1 apart=160:400 "${words[@]}"
    sim_epochs 100 1 2 single.h5 sn=10:60 vsini=0:60 "${words[@]}"
}

data() {
    for f; do ln -s "$BATS_FILE_TMPDIR/$f" .; done
}

fit() {
    rvs-fit -q -t templates.h5 --no-model "--vrange=-700,700" "$@"
}

table() {
    h5table --csv -c "$2" ${3:+-t "$3"} "$1" | tail -n +2 | tr , ' '
}

@test "pairs are found, with both velocities and the light ratio; single stars are not" {
    data templates.h5 pairs.h5 single.h5
    fit --components 2 -o pairs-rv.h5 pairs.h5
    fit --components 2 -o single-rv.h5 single.h5
    h5check pairs-rv.h5 single-rv.h5
    [ "$(table single-rv.h5 DOUBLE | grep -c 1)" -eq 0 ]
    [ "$(table pairs-rv.h5 DOUBLE | grep -c 1)" -ge 57 ]
    # either star may be the brighter one where they are nearly alike
    paste -d' ' <(table pairs-rv.h5 VRAD1,VRAD1_ERR,VRAD2,VRAD2_ERR,FLUX_RATIO,FLUX_RATIO_ERR,DOUBLE) \
        <(table pairs-rv.h5 VRAD,VRAD2,RATIO /fibermap) | awk '$7 {
            swapped = ($1 - $8)^2 > ($1 - $9)^2; a = swapped ? $9 : $8; b = swapped ? $8 : $9
            p = ($1 - a) / $2; q = ($3 - b) / $4; n++; s += p * p; t += q * q; far += p * p > 25 || q * q > 25; alike += swapped
            r = swapped ? 1 / $10 : $10; light += ($5 - r)^2 < (4 * $6)^2 }
        END { print n, sqrt(s / n), sqrt(t / n), far, alike, light
            exit !(s / n < 1.4^2 && s / n > 0.7^2 && t / n < 1.4^2 && t / n > 0.7^2 && far == 0 && light > 0.9 * n) }'
}

@test "the fit with one star is as without; threads change no bit" {
    data templates.h5 pairs.h5
    fit --reproducible -j 1 --components 2 --rows 0:12 -o two.h5 pairs.h5
    fit --reproducible -j 3 --components 2 --rows 0:12 -o threads.h5 pairs.h5
    fit --reproducible --rows 0:12 -o one.h5 pairs.h5
    h5diff two.h5 threads.h5 /rvfit
    cmp <(table one.h5 VRAD,VRAD_ERR,TEFF,CHISQ_TOT,RVS_WARN) <(table two.h5 VRAD,VRAD_ERR,TEFF,CHISQ_TOT,RVS_WARN)
    run ! h5table -c VRAD2 one.h5
    # what is held stays
    fit --components 2 --fix teff=5500 --no-rotation --rows 0:6 -o held.h5 pairs.h5
    table held.h5 TEFF2 | awk 'tolower($1) !~ /nan/ && ($1 - 5500)^2 > 1e-6 { exit 1 }'
}

@test "pairs behind lines of the atmosphere" {
    # sums of the light of two fibres, whose stars differ in velocity and a little in temperature
    specx-sim -q --library stars --step 0.1 --wavelength 6800,7000 --axis teff=4750,5250,5750 --axis logg=3.5 \
        --axis feh=-0.8,-0.4,0 --axis alpha=0
    fits2h5 -q stars | rvs-template -q --library-resolution none -o narrow.h5 -s r:6825:6975:0.2:FWHM=0.5
    rvs-telluric --simulated 6800,7000 -o lines.h5
    specx-sim -q --arm r --fibers 24 --sky-fibers 0 --no-sky --wavelength 6830,6970 --teff 4900:5300 --logg 3.5:3.5 \
        --feh=-0.4:-0.4 --vsini 0:2 --snr 150:160 --tellurics 1.4 --psf-output psf.fits --truth truth.h5 -o image.fits
    fits2h5 -q image.fits psf.fits | specx-extract -q --wavelength 6830,6970,0.8 -o air.h5
    cp air.h5 sums.h5
    for ((k = 0; k < 16; k += 2)); do echo "add /frame/flux 0 $((k + 1)) $k"; done | xargs h5edit sums.h5
    h5edit sums.h5 scale /frame/ivar 0.5
    local f
    for f in air sums; do
        rvs-fit -q -t narrow.h5 --resolution-matrix "--vrange=-600,600" --tellurics lines.h5 --components 2 --no-model \
            --telluric-stars 8 -o $f-rv.h5 $f.h5
    done
    [ "$(table air-rv.h5 DOUBLE | grep -c 1)" -eq 0 ]
    # the first 16 rows are sums and single stars in turn; pairs closer than the width of lines, 70 km/s, do not count
    paste -d' ' <(table sums-rv.h5 DOUBLE,VRAD1,VRAD1_ERR,VRAD2,VRAD2_ERR) <(table truth.h5 VRAD /truth/table) \
        <(table truth.h5 VRAD /truth/table | tail -n +2) | awk '
        NR > 16 || NR % 2 == 0 { wrong += $1; next }
        ($6 - $7)^2 > 105^2 { n++; found += $1; swapped = ($2 - $6)^2 > ($2 - $7)^2
            p = ($2 - (swapped ? $7 : $6)) / $3; q = ($4 - (swapped ? $6 : $7)) / $5; print; s += p * p + q * q }
        END { print n, found, wrong, s / (2 * n); exit !(n >= 5 && found == n && wrong == 0 && s / (2 * n) < 1.6^2) }'
}

@test "spectra without light have no pair; options that make no sense" {
    data templates.h5 pairs.h5
    cp "$(readlink -f pairs.h5)" bad.h5
    n=$(h5dump -H -d /spectra/r/wavelength bad.h5 | sed -n 's/.*SIMPLE { ( \([0-9]*\) ).*/\1/p' | head -n 1)
    for ((k = 0; k < n; k++)); do echo "set /spectra/r/ivar $k 0"; done | xargs h5edit bad.h5
    fit --components 2 --rows 0:2 -o bad-rv.h5 bad.h5
    h5check bad-rv.h5
    table bad-rv.h5 VRAD2,DCHISQ_2,DOUBLE | awk 'NR == 1 { exit !(tolower($1) ~ /nan/ && $2 == 0 && $3 == 0) }'
    fails_with 2 '*--components*' rvs-fit -t templates.h5 --components 3 -o x.h5 pairs.h5
    fails_with 2 '*--components 2*--prior*' rvs-fit -t templates.h5 --components 2 --prior teff=5500,100 -o x.h5 pairs.h5
}
