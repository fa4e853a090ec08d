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
    # npoly 10 and six quantities less
    paste -d, <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR,CHISQ_TOT,NPIX_TOT plain.h5) \
        <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR wide.h5) | awk -F, '
        NR > 1 {
            s = sqrt($4 / ($5 - 16)); n++
            if (!(s > 3 && $6 == $1 && sqrt(($7 / $2 / s - 1) ^ 2) < 0.002 && sqrt(($8 / $3 / s - 1) ^ 2) < 0.002)) {
                print; bad = 1
            }
        }
        END { exit bad || n < 6 }'
    h5edit f.h5 scale /frame/ivar 0.0016
    rvs-fit -q --templates "$d/templates.h5" f.h5 -o a.h5
    rvs-fit -q --scale-errors --templates "$d/templates.h5" f.h5 -o b.h5
    cmp <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR a.h5) <(h5table --csv -c VRAD,VRAD_ERR,TEFF_ERR b.h5)
}
