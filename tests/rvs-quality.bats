# How well a fit fits: the flag, the probability, errors as large as the misfit.

load common

setup_file() {
    example_data
}

@test "variances in place of ivar, and other scales of it, are flagged" {
    local d=$BATS_FILE_TMPDIR/data n
    rvs-fit -q --templates "$d/templates.h5" "$d/frame-r0.h5" -o right.h5
    [ "$(h5table --csv -c RVS_WARN right.h5 | awk 'NR > 1 && int($1 / 256) % 2')" = '' ]
    # probable, for most: a star or two may suffer from the coarse grid of templates
    h5table --csv -c CHISQ_LOGP right.h5 | awk 'NR > 1 { n += $1 <= 0 && $1 > -3 } END { exit n < 4 }'
    # an ivar that is 25 times too large, and one that is 25 times too small
    for n in 0.04 25; do
        cp "$d/frame-r0.h5" f.h5
        h5edit f.h5 scale /frame/ivar "$n"
        rvs-fit --templates "$d/templates.h5" f.h5 -o x.h5 -f 2>log
        h5table --csv -c RVS_WARN x.h5 | awk 'NR > 1 && int($1 / 256) % 2 == 0 { print; bad = 1 } END { exit bad }'
        grep -q 'median chi2 a pixel .*256: 6' log
    done
}

@test "--scale-errors widens errors by the root of chi2 a degree of freedom, and never narrows them" {
    local d=$BATS_FILE_TMPDIR/data
    cp "$d/frame-r0.h5" f.h5
    h5edit f.h5 scale /frame/ivar 25
    rvs-fit -q --templates "$d/templates.h5" f.h5 -o plain.h5
    rvs-fit -q --scale-errors --templates "$d/templates.h5" f.h5 -o wide.h5
    # the functions of the continuum and six quantities less
    paste -d, <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR,CHISQ_TOT,NPIX_TOT,NPOLY_R plain.h5) \
        <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR wide.h5) | awk -F, '
        NR > 1 {
            s = sqrt($4 / ($5 - $6 - 6)); n++
            if (!(s > 3 && $7 == $1 && sqrt(($8 / $2 / s - 1) ^ 2) < 0.002 && sqrt(($9 / $3 / s - 1) ^ 2) < 0.002)) {
                print; bad = 1
            }
        }
        END { exit bad || n < 6 }'
    h5edit f.h5 scale /frame/ivar 0.0016
    rvs-fit -q --templates "$d/templates.h5" f.h5 -o a.h5
    rvs-fit -q --scale-errors --templates "$d/templates.h5" f.h5 -o b.h5
    cmp <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR a.h5) <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR b.h5)
}

# flagged BIT FILE: number of stars of a fit that have this bit.
flagged() {
    h5table --csv -c RVS_WARN "$2" | awk -v bit="$1" 'NR > 1 && int($1 / bit) % 2 { n++ } END { print n + 0 }'
}

@test "light of the wrong sign is flagged, faint and empty spectra are not" {
    local d=$BATS_FILE_TMPDIR/data sn
    cp "$d/frame-r0.h5" f.h5
    h5edit f.h5 scale /frame/flux -1
    rvs-fit --templates "$d/templates.h5" f.h5 -o x.h5 2>log
    [ "$(flagged 512 x.h5)" -eq 6 ]
    grep -q 'RVS_WARN bits.* 512: 6' log
    rvs-fit -q --all-fibers --templates "$d/templates.h5" "$d/frame-r0.h5" -o right.h5
    [ "$(flagged 512 right.h5)" -eq 0 ]
    for sn in 0.3 2; do
        specx-sim -q --arm r --fibers 8 --sky-fibers 2 --no-sky --wavelength 6400,6600 --snr $sn -o faint.h5 -f
        specx-extract -q -w 6400,6600,0.8 faint.h5 -f -o faint-frame.h5
        rvs-fit -q --all-fibers --templates "$d/templates.h5" faint-frame.h5 -f -o x.h5
        [ "$(flagged 512 x.h5)" -eq 0 ]
    done
}

@test "exposures that cannot be one star are flagged, those of one star are not" {
    local n d=$BATS_FILE_TMPDIR/data
    for n in 1 2; do
        specx-sim -q --arm r --fibers 8 --sky-fibers 0 --no-sky --wavelength 6400,6600 --snr 50 --teff 5200:5800 \
            --logg 3.7:4.3 --feh -0.8:-0.2 --alpha 0 --noise-seed $n --mjd 5900$n.2 --expid $n -o image.h5 -f
        specx-extract -q -w 6400,6600,0.8 image.h5 -o f$n.h5
    done
    rvs-fit -q --joint target --templates "$d/templates.h5" f1.h5 f2.h5 -o one.h5
    [ "$(flagged 1024 one.h5)" -eq 0 ]
    # exposures of other stars, all as one: velocities differ by up to 600 km/s
    rvs-fit --joint all --templates "$d/templates.h5" f1.h5 f2.h5 -o all.h5 2>log
    [ "$(flagged 1024 all.h5)" -eq 1 ]
    grep -q 'RVS_WARN bits.* 1024: 1' log
    # a single exposure has nothing to disagree with
    rvs-fit -q --joint target --templates "$d/templates.h5" f1.h5 -o single.h5
    [ "$(flagged 1024 single.h5)" -eq 0 ]
}

@test "an arm whose wavelengths are in air is flagged, arms that agree are not" {
    local arm
    specx-sim -q --library stars -w 5100,6700 --axis teff=5000,5500,6000 --axis logg=3.5,4,4.5 --axis feh=-1,-0.5,0 \
        --axis alpha=0
    fits2h5 -q stars | rvs-template -q -s b:5180:5420:0.4:FWHM=1.1774 -s r:6380:6620:0.4:FWHM=1.1774 -o t.h5
    for arm in b:5200,5400 r:6400,6600; do
        specx-sim -q --arm "${arm%:*}" --fibers 8 --sky-fibers 0 --no-sky --wavelength "${arm#*:}" --snr 30:50 \
            --teff 5200:5800 --logg 3.7:4.3 --feh -0.8:-0.2 --alpha 0 -o image.h5 -f
        specx-extract -q -w "${arm#*:},0.8" image.h5 -o "${arm%:*}.h5"
    done
    rvs-fit -t t.h5 --resolution-matrix b.h5 r.h5 -o right.h5 2>log
    [ "$(flagged 4096 right.h5)" -eq 0 ]
    run ! grep 'in arm' log
    # lambda / 1.000277, still called vacuum
    h5edit b.h5 scale /frame/wavelength 0.99972308
    rvs-fit -t t.h5 --resolution-matrix b.h5 r.h5 -o air.h5 2>log
    [ "$(flagged 4096 air.h5)" -ge 6 ]
    grep 'of 8 stars in arm [br] are [-+]8[0-9] km/s .*4096.*in air' log
    # an arm by itself has nothing to disagree with
    rvs-fit -q -t t.h5 --resolution-matrix b.h5 -o alone.h5
    [ "$(flagged 4096 alone.h5)" -eq 0 ]
}

# stars_with_misfit SEED MISFIT: templates t.h5, stars.h5 with lines of their own, truth (any_library).
stars_with_misfit() {
    any_library "$1" 2 grid library.h5 stars.h5 "$2" >truth
    rvs-template -q -f -s a:5020:5180:0.4:FWHM=1.58 --library-resolution none --log-param "$(sed -n 1p truth)" -o t.h5 \
        library.h5
}

# rms_pull FILE...: of the velocities of fits, beside the truth of the same name with .truth
rms_pull() {
    local f
    for f; do
        paste -d, <(tail -n +4 "$f.truth") <(h5table --csv -c VRAD,VRAD_ERR "$f" | tail -n +2)
    done | awk -F, '{ p = ($(NF - 1) - $1) / $NF; s += p * p } END { print sqrt(s / NR) }'
}

@test "--jitter: errors of stars whose lines are not those of the templates hold the misfit" {
    local seed fits=() plain=()
    for seed in 11 12 13 15; do
        stars_with_misfit $seed 0.3
        rvs-fit -q --npoly 5 --vrange=-400,400 -t t.h5 -o plain$seed.h5 stars.h5
        rvs-fit -q --npoly 5 --vrange=-400,400 --jitter fit -t t.h5 -o fit$seed.h5 stars.h5
        cp truth plain$seed.h5.truth
        cp truth fit$seed.h5.truth
        plain+=("plain$seed.h5")
        fits+=("fit$seed.h5")
        h5check fit$seed.h5
        # a misfit of some per cent is in the jitter, and no longer in chi squared
        h5table --csv -c JITTER_A,JITTER_ERR_A,CHISQ_TOT,NPIX_TOT,RVS_WARN fit$seed.h5 | awk -F, '
            NR > 1 { n++; if (!($1 > 0.005 && $1 < 0.3 && $2 > 0 && $2 < 0.2 * $1 && $3 / $4 > 0.9 && $3 / $4 < 1.1 &&
                int($5 / 256) % 2 == 0)) { print; bad = 1 } }
            END { exit bad || n != 6 }'
    done
    # 24 stars: the rms of their pulls has a statistical error of 15 %
    rms_pull "${plain[@]}" | awk '{ print; exit !($1 > 3) }'
    rms_pull "${fits[@]}" | awk '{ print; exit !($1 > 0.6 && $1 < 1.6) }'
}

@test "--jitter: a number, of an arm, and what makes no sense" {
    local d=$BATS_FILE_TMPDIR/data
    rvs-fit -q --jitter 0.02 -t "$d/templates.h5" -o all.h5 "$d/frame-r0.h5"
    rvs-fit -q --jitter r:0.02 --jitter fit -t "$d/templates.h5" -o arm.h5 "$d/frame-r0.h5"
    h5diff all.h5 arm.h5 /rvfit
    h5table --csv -c JITTER_R,JITTER_ERR_R all.h5 | awk -F, 'NR > 1 && !($1 == 0.02 && $2 == 0) { bad = 1 } END { exit bad }'
    # without a jitter there is no column of it
    rvs-fit -q -t "$d/templates.h5" -o none.h5 "$d/frame-r0.h5"
    run ! grep -q JITTER <(h5table --csv none.h5)
    # the weights of pixels are those of none: the errors alone are wider, or as they were
    rvs-fit -q --jitter 0 -t "$d/templates.h5" -o zero.h5 "$d/frame-r0.h5"
    paste -d, <(h5table --csv -c VRAD,CHISQ_TOT,VRAD_ERR none.h5) <(h5table --csv -c VRAD,CHISQ_TOT,VRAD_ERR zero.h5) |
        awk -F, 'NR > 1 { n++; if (!($1 == $4 && $2 == $5 && $6 >= (1 - 1e-12) * $3 && $6 < 2 * $3)) { print; bad = 1 } }
            END { exit bad || n < 6 }'
    fails_with 2 "*--jitter q:0.1: the spectra have no arm 'q'*" \
        rvs-fit --jitter q:0.1 -t "$d/templates.h5" -o x.h5 "$d/frame-r0.h5"
    for wrong in much -0.1 2 r:; do
        fails_with 2 "*--jitter $wrong: give a fraction of the flux, 0 to 1, or 'fit'*" \
            rvs-fit --jitter="$wrong" -t "$d/templates.h5" -o x.h5 "$d/frame-r0.h5"
    done
    fails_with 2 '*--jitter 0.1: there is another jitter for the same arm*' \
        rvs-fit --jitter 0.2 --jitter 0.1 -t "$d/templates.h5" -o x.h5 "$d/frame-r0.h5"
    fails_with 2 '*--jitter and --scale-errors exclude each other*' \
        rvs-fit --jitter fit --scale-errors -t "$d/templates.h5" -o x.h5 "$d/frame-r0.h5"
}
