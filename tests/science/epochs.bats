# Velocities of single exposures (rvs-fit --epochs): false alarms, foreign truths, moving stars; with figures. `make
# check-science`; some ten minutes of two cores.
load ../common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    specx-sim -q --library stars --step 0.1 --wavelength 5000,5500 --axis logg=1.5,2.5,3.5,4.5,5 \
        --axis feh=-2,-1.5,-1,-0.5,0,0.5 --axis alpha=0,0.4 \
        --axis teff=4000,4250,4500,4750,5000,5250,5500,5750,6000,6250,6500,6750,7000,7500
    fits2h5 -q stars | rvs-template -q --library-resolution none --setup r:5100:5400:0.4:FWHM=1.526 -o t.h5
}

# figures STARS EXPOSURES SEED OPTIONS WORD...: pulls of velocities, chi^2 of constancy and alarms of simulated stars
# (sim_epochs), on a line; numbers that are judged in the file `judge`: stars, alarms, width of pulls, chi^2/dof, exposures,
# those that are compared.
figures() {
    sim_epochs "$1" "$2" "$3" s.h5 "${@:5}"
    # options are words
    # shellcheck disable=SC2086
    rvs-fit -q -f -t "$BATS_FILE_TMPDIR/t.h5" --joint target --epochs --no-model "--vrange=-700,700" $4 -o rv.h5 s.h5
    paste -d' ' <(h5table --csv -t /rvfit/exposures -c VRAD,VRAD_ERR,EPOCH_WARN rv.h5 | tail -n +2 | tr , ' ') \
        <(h5table --csv -t /exp_fibermap -c VRAD rv.h5 | tail -n +2) >exposures
    awk '$3 == 0 { p = ($1 - $4) / $2; print p }' exposures | sort -g | awk '{ p[NR] = $1 } END {
        print (p[int(0.8413 * NR + 0.5)] - p[int(0.1587 * NR + 0.5)]) / 2, NR }' >width
    h5table --csv -c CONST_CHISQ,CONST_DOF,VARIABLE rv.h5 | tail -n +2 | tr , ' ' |
        awk '$2 > 0 { n++; c += $1; d += $2; v += $3 } END { print n, v, c / d }' >alarms
    paste -d' ' alarms width <(wc -l <exposures) | awk '{ print $1, $2, $4, $3, $6, $5 }' >judge
    awk -v what="${*:4}" '{ printf "%s: alarms %.2f +- %.2f %% of %d stars, chi2/dof %.3f +- %.3f, pulls %.3f +- %.3f, %.1f %% compared\n",
        what, 100 * $2 / $1, 100 * sqrt(($2 + 1) * (1 - $2 / $1)) / $1, $1, $4, sqrt(2 / ($6 - $1)), $3, 1.03 / sqrt($6), 100 * $6 / $5 }' judge >&3
}

@test "constant stars: 0.27 % beyond 3 sigma" {
    local seed
    rm -f all
    for seed in ${SEEDS:-2 3 4}; do
        figures 4000 4 "$seed" ""
        cat judge >>all
    done
    awk '{ n += $1; v += $2; c += $4 / NR } END {
        printf "false alarms: %.3f +- %.3f %% of %d stars\n", 100 * v / n, 100 * sqrt(v) / n, n; exit !(v / n > 0.002 - 2 * 0.0005 && v / n < 0.004) }' all >&3
    awk '!($3 > 0.95 && $3 < 1.05 && $4 > 0.95 && $4 < 1.05) { exit 1 }' all
}

@test "constant stars, faint: no more alarms" {
    figures 4000 4 3 "" sn=4:12
    awk '{ exit !($2 / $1 < 0.004 && $4 < 1.05) }' judge
}

@test "foreign truths: lines that no template has, wrong errors, cosmic rays, unequal exposures" {
    # signal-to-noise ratios that differ by a factor of 10 among the exposures of a star
    figures 2000 4 12 "" sn=10:100
    awk '{ exit !($2 / $1 < 0.008 && $4 < 1.08) }' judge
    # 12 lines of depths up to 0.15 that the templates lack: velocities share the misfit
    figures 2000 4 12 "" lines=0.15
    awk '{ exit !($2 / $1 < 0.008 && $4 < 1.08) }' judge
    figures 2000 4 12 "--jitter fit" lines=0.15 sn=100:200
    awk '{ exit !($2 / $1 < 0.008 && $4 < 1.08) }' judge
    # errors that are too small make alarms, unless they are scaled
    figures 2000 4 12 "" errors=1.3
    awk '{ exit !($2 / $1 > 0.02) }' judge
    figures 2000 4 12 "--scale-errors" errors=1.3
    awk '{ exit !($2 / $1 < 0.008 && $4 < 1.08) }' judge
    # three hits of 20 errors in one exposure
    figures 2000 4 12 "" hits=3:20
    figures 2000 4 12 "--reject 3" hits=3:20
    awk '{ exit !($2 / $1 < 0.008 && $4 < 1.08) }' judge
}

@test "moving stars: velocities are right, and how many are found" {
    local change
    for change in 3 5 10 20 50; do
        figures 1000 4 13 "" change=$change:$change
        # templates of joint fits are blurred, so that errors are up to a fifth too large
        awk '{ exit !($3 > 0.75 && $3 < 1.07) }' judge
        h5table --csv -t /rvfit/exposures -c VRAD_ERR rv.h5 | tail -n +2 | sort -g | awk -v c=$change '{ e[NR] = $1 } END {
            printf "  amplitude %g km/s, median error of an exposure %.1f km/s\n", c, e[int(NR / 2)] }' >&3
    done
    awk '{ exit !($2 / $1 > 0.95) }' judge # amplitude 50: phases of four exposures may be alike
}
