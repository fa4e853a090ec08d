# rvs-fit --epochs: velocities of single exposures, and whether they are constant.
load common

# Templates for 5100 to 5400 Angstrom, of the simulator's stars.
setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    specx-sim -q --library stars --step 0.1 --wavelength 5030,5480 --axis logg=2,3,4,5 --axis feh=-2,-1,0 --axis alpha=0,0.4 \
        --axis teff=4500,5000,5500,6000,6500,7000
    fits2h5 -q stars | rvs-template -q --library-resolution none --setup r:5100:5400:0.4:FWHM=1.526 -o templates.h5
    sim_epochs 60 4 1 still.h5 teff=5000:6500
    sim_epochs 60 4 2 moving.h5 teff=5000:6500 change=40:40
}

fit() {
    rvs-fit -q -t "$BATS_FILE_TMPDIR/templates.h5" --joint target --epochs "--vrange=-500,500" "$@"
}

epochs() {
    h5table --csv -t "${3:-/rvfit/exposures}" -c "$1" "$2" | tail -n +2 | tr , ' '
}

@test "constant and moving stars: velocities, errors, and which is which" {
    fit -o still.h5 "$BATS_FILE_TMPDIR/still.h5"
    fit -o moving.h5 "$BATS_FILE_TMPDIR/moving.h5"
    h5check still.h5 moving.h5
    for name in still moving; do
        paste -d' ' <(epochs VRAD,VRAD_ERR,EPOCH_WARN $name.h5) <(epochs VRAD,TARGETID $name.h5 /exp_fibermap) >pulls
        [ "$(wc -l <pulls)" -eq 240 ]
        # the rms of 240 pulls is 1 within 0.15 (3 sigma); those of moving stars are of blurred templates
        awk '$3 == 0 { p = ($1 - $4) / $2; n++; s += p * p; far += p * p > 25 }
            END { print n, sqrt(s / n), far; exit !(n > 228 && s / n > 0.85^2 && s / n < 1.2^2 && far == 0) }' pulls
    done
    # 60 constant stars: one beyond 3 sigma in 6 such tests
    [ "$(epochs VARIABLE still.h5 /rvfit/table | grep -c 1)" -le 1 ]
    [ "$(epochs VARIABLE moving.h5 /rvfit/table | grep -c 1)" -ge 55 ]
    # chi^2 of constancy as the velocities have it, its degrees of freedom and its probability
    paste -d' ' <(epochs TARGETID,VRAD,VRAD_ERR,EPOCH_WARN still.h5) <(epochs CONST_CHISQ,CONST_DOF,CONST_LOGP still.h5 /rvfit/table |
        awk '{ for (k = 0; k < 4; k++) print }') | awk '
        $1 != id { id = $1; n = w = s = q = 0 }
        $4 == 0 { n++; w += 1 / $3^2; s += $2 / $3^2; q += $2^2 / $3^2 }
        ++rows % 4 == 0 && $6 > 0 { d = q - s * s / w - $5; if (d * d > 1e-4 || $6 != n - 1) { print; exit bad = 1 } seen++
            # even degrees of freedom: exp(-x/2) sum (x/2)^k/k!
            if ($6 == 2 && ($7 + $5 / 2 / log(10))^2 > 1e-8) exit bad = 1 }
        END { exit bad || seen < 50 }'
    # 1728 s that begin at MJD 60000, 60001 ...
    epochs MJD_MID,NIGHT,EXPID still.h5 |
        awk 'NR <= 4 { bad += !(($1 - 59999.01 - NR)^2 < 1e-18 && $2 == 20230100 + NR && $3 == 999 + NR) } END { exit bad }'
    # the arm is all there is
    [ "$(epochs VRAD_WEIGHT_R still.h5 | sort -u)" = 1 ]
}

@test "the same bits for any number of threads, in parts, and of other stars; the star itself is as without" {
    data=$BATS_FILE_TMPDIR/moving.h5
    fit --reproducible -j 1 -o one.h5 "$data"
    fit --reproducible -j 3 -o three.h5 "$data"
    fit --reproducible --max-mem 24M -o parts.h5 "$data"
    h5diff one.h5 three.h5 /rvfit
    h5diff one.h5 parts.h5 /rvfit
    fit --rows 8:16 -o some.h5 "$data"
    cmp <(epochs VRAD,VRAD_ERR,VRAD_ALT,DCHISQ_ALT some.h5) <(epochs VRAD,VRAD_ERR,VRAD_ALT,DCHISQ_ALT one.h5 | sed -n 9,16p)
    rvs-fit -q -t "$BATS_FILE_TMPDIR/templates.h5" --joint target --vrange=-500,500 -o plain.h5 "$data"
    cmp <(h5table --csv -c VRAD,VRAD_ERR,VRAD_ALT,COVAR,CHISQ_TOT,RVS_WARN plain.h5) \
        <(h5table --csv -c VRAD,VRAD_ERR,VRAD_ALT,COVAR,CHISQ_TOT,RVS_WARN one.h5)
}

@test "an exposure without light is not compared, and says so; a single one is constant" {
    cp "$BATS_FILE_TMPDIR/moving.h5" bad.h5
    n=$(h5dump -H -d /spectra/r/wavelength bad.h5 | sed -n 's/.*SIMPLE { ( \([0-9]*\) ).*/\1/p' | head -n 1)
    for ((k = 0; k < n; k++)); do echo "set /spectra/r/ivar $((n + k)) 0"; done | xargs h5edit bad.h5
    fit --rows 0:4 -o bad-rv.h5 bad.h5
    h5check bad-rv.h5
    [ "$(epochs EPOCH_WARN bad-rv.h5 | tr '\n' ' ')" = "0 1 0 0 " ]
    epochs VRAD,VRAD_ERR bad-rv.h5 | awk 'NR == 2 { exit !(tolower($1) ~ /nan/ && tolower($2) ~ /nan/) }'
    [ "$(epochs CONST_DOF bad-rv.h5 /rvfit/table)" = 2 ]
    fit --rows 0:1 -o one.h5 bad.h5
    [ "$(epochs CONST_CHISQ,CONST_DOF,CONST_LOGP,VARIABLE one.h5 /rvfit/table)" = "0 0 0 0" ]
}

@test "errors hold a jitter for the star, and noise alone for its exposures" {
    sim_epochs 40 4 5 stars.h5 teff=5000:6500 sn=100:200 lines=0.1
    fit --jitter fit -o jitter.h5 stars.h5
    [ "$(epochs VARIABLE jitter.h5 /rvfit/table | grep -c 1)" -le 1 ]
    # the scatter of exposures, which see the same lines, is less than the error of the star says
    paste -d' ' <(epochs VRAD,VRAD_ERR,EPOCH_WARN jitter.h5) <(epochs VRAD_ERR jitter.h5 /rvfit/table |
        awk '{ for (k = 0; k < 4; k++) print }') | awk '$3 == 0 { n++; s += $2 < 2 * $4 } END { print n, s; exit s < 0.8 * n }'
    epochs CONST_CHISQ,CONST_DOF jitter.h5 /rvfit/table | awk '{ c += $1; d += $2 }
        END { print c / d; exit !(c / d > 0.6 && c / d < 1.4) }'
}

@test "options that make no sense together; times that are not known" {
    data=$BATS_FILE_TMPDIR/still.h5
    fails_with 2 '*--epochs goes with --joint*' rvs-fit -t "$BATS_FILE_TMPDIR/templates.h5" --epochs -o x.h5 "$data"
    fails_with 2 '*--fix v*' rvs-fit -t "$BATS_FILE_TMPDIR/templates.h5" --joint target --epochs --fix v=3 -o x.h5 "$data"
    fails_with 2 '*--prior v*' rvs-fit -t "$BATS_FILE_TMPDIR/templates.h5" --joint target --epochs --prior v=3,1 -o x.h5 "$data"
    cp "$data" some.h5
    h5edit some.h5 attr / note edited
    LC_ALL=C sed 's/MJD/JJJ/g' some.h5 >timeless.h5
    run --separate-stderr rvs-fit -t "$BATS_FILE_TMPDIR/templates.h5" --joint target --epochs "--vrange=-500,500" --rows 0:4 \
        -o timeless-rv.h5 timeless.h5
    # run sets them
    # shellcheck disable=SC2154
    [ "$status" -eq 0 ]
    # shellcheck disable=SC2154
    [[ $stderr == *"not known when 4 of 4 exposures"* ]]
    h5check timeless-rv.h5
    epochs MJD_MID timeless-rv.h5 | awk 'tolower($1) !~ /nan/ { exit 1 }'
}
