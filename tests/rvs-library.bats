# rvs-template and rvs-fit together, on libraries of one to six parameters of any names, ranges and spacing.
load common

# Parameters of these seeds have fewer and more mapped ones among them; SPX_SEED tries others.
SEED=${SPX_SEED:-1}

# recover NPAR KIND INTERPOLATOR...: six stars are fitted with each interpolator; velocity and parameters are within five
# of their errors, and a fiftieth of the range, of what was put in.
recover() {
    local npar=$1 kind=$2 names both interpolator=auto fwhm i
    shift 2
    any_library "$SEED" "$npar" "$kind" library.h5 stars.h5 >truth
    names=$(sed -n 2p truth)
    both=$(sed 's/[^,]*/&,&_ERR/g' <<<"$names")
    printf '5000 1.6\n5100 1.6\n5200 1.6\n' >fwhm.txt
    # the same width in many ways
    fwhm=(FWHM=1.6 R=x/1.6 FWHM=@fwhm.txt 'FWHM=sqrt(2.56)+0*x' 'R=x/(1+0.6)' FWHM=1.6)
    [ "$kind" != scattered ] || interpolator=simplex
    rvs-template -q -s "a:5020:5180:0.4:${fwhm[npar - 1]}" --library-resolution none --log-param "$(sed -n 1p truth)" \
        --interpolator "$interpolator" --train-nn --nn-hidden 32,32 --nn-epochs 500 -f -o t.h5 library.h5
    h5check t.h5
    for i; do
        rvs-fit -q -f --npoly 5 --interpolator "$i" -t t.h5 -o rv.h5 stars.h5
        h5check rv.h5
        h5table --csv -c "$both" rv.h5 | tail -n +2 >fit
        tail -n +4 truth | paste -d, - fit | awk -F, -v allowed="$(sed -n 3p truth)" \
            -v what="seed $SEED, $npar parameters, $kind, $i" '
            BEGIN { n = split(allowed, more, ",") }
            {
                for (q = 1; q <= n; q++) {
                    value = $(n + 2 * q - 1); error = $(n + 2 * q); off = (value - $q) / (5 * error + more[q])
                    if (!(error > 0) || off^2 > 1) {
                        print what ": star " NR ": " value " +- " error ", truth " $q
                        bad = 1
                    }
                }
            }
            END { exit bad || NR != 6 }'
    done
}

@test "rvs-template, rvs-fit: grids of one to six parameters, cubic, linear, and by a network" {
    for n in 1 2 3 4 5 6; do
        recover $n grid cubic grid nn
    done
}

@test "rvs-fit: of templates that have components it needs no others" {
    any_library "$SEED" 2 grid library.h5 stars.h5 >truth
    rvs-template -q -s a:5020:5180:0.4:FWHM=1.6 --library-resolution none --log-param none -o t.h5 library.h5
    rvs-fit -q --reproducible --npoly 5 -t t.h5 -o good.h5 stars.h5
    h5edit t.h5 set /templates/a/lnflux 4321 nan
    rvs-fit -q --reproducible --npoly 5 -t t.h5 -o rv.h5 stars.h5
    h5diff good.h5 rv.h5 /rvfit
    fails_with 3 '*t.h5:/templates/a/lnflux: element 4321 is not finite*' \
        rvs-fit --interpolator grid -t t.h5 -o x.h5 stars.h5
}

@test "rvs-template, rvs-fit: names of parameters that are the same, are missing, or are those of other columns" {
    any_library "$SEED" 2 grid library.h5 stars.h5 >truth
    h5edit library.h5 strings /library/parname mass,mass
    fails_with 3 '*library.h5:/library/parname: parameters 0 and 1 are both called mass: rename one*' \
        rvs-template -s a:5020:5180:0.4:FWHM=1.6 -o t.h5 library.h5
    h5edit library.h5 strings /library/parname 'mass, '
    fails_with 3 '*library.h5:/library/parname: parameter 1 has no name*' \
        rvs-template -s a:5020:5180:0.4:FWHM=1.6 -o t.h5 library.h5
    # names that differ in capitals only, and those of other columns
    h5edit library.h5 strings /library/parname mass,Mass
    rvs-template -q -s a:5020:5180:0.4:FWHM=1.6 --library-resolution none --log-param none -o t.h5 library.h5
    rvs-fit -q --npoly 5 -t t.h5 -o rv.h5 stars.h5
    h5check rv.h5
    [[ $(h5table --csv rv.h5 | head -1) == *,MASS,MASS_ERR,PAR_MASS,PAR_MASS_ERR,* ]]
    h5edit library.h5 strings /library/parname chisq_tot,vrad_err
    rvs-template -q -f -s a:5020:5180:0.4:FWHM=1.6 --library-resolution none --log-param none -o t.h5 library.h5
    rvs-fit -q -f --npoly 5 -t t.h5 -o rv.h5 stars.h5
    [[ $(h5table --csv rv.h5 | head -1) == *,PAR_CHISQ_TOT,PAR_CHISQ_TOT_ERR,PAR_VRAD_ERR,PAR_VRAD_ERR_ERR,* ]]
}

@test "rvs-template, rvs-fit: grids with holes" {
    for n in 1 2 3 4 5 6; do
        recover $n holes cubic grid nn
    done
}

@test "rvs-template, rvs-fit: libraries that are no grid, of one to six parameters" {
    for n in 1 2 3 4 5 6; do
        recover $n scattered simplex nn
    done
}
