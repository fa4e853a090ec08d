# rvs-template: libraries to templates.
load common

# 5000-5400 Angstrom, vacuum, step 0.1; teff 5000, 5500, 6000 x logg 0...5 x feh -3...0.5 x alpha 0, 0.4
setup_file() {
    PATH=$SPX_BUILD/tests/helpers:$PATH
    mock_library "$BATS_FILE_TMPDIR/library.h5" 5000 5400 5000 6000
}

# values PATH FILE: the numbers of a dataset, on one line.
values() {
    h5dump -y -w 0 -d "$1" "$2" |
        awk '/DATA \{/ && !n++ { on = 1; next } /\}/ { on = 0 } on' | tr -d ',\n' | sed 's/^ *//; s/  */ /g'
}

@test "rvs-template makes templates of several setups in one pass" {
    rvs-template -s a:5050:5350:0.4:R=x/1.55 -s b_2:5100:5300:0.2:FWHM=1.2 -o t.h5 "$BATS_FILE_TMPDIR/library.h5"
    h5check t.h5
    [ "$(h5ls t.h5/templates | wc -l)" -eq 2 ]
    [ "$(values /templates/a/grid/naxis t.h5)" = "3 6 7 2" ]
    [ "$(values /templates/b_2/grid/axes t.h5)" = "5000 5500 6000 0 1 2 3 4 5 -3 -2 -1.5 -1 -0.5 0 0.5 0 0.4" ]
    [ "$(values /templates/a/parlog t.h5)" = "1 0 0 0" ]
    [[ $(values /templates/a/filled t.h5) != *1* ]]
}

@test "rvs-template: a pipe, batches and threads change nothing" {
    rvs-template --reproducible -j 1 -s a:5050:5350:0.4:R=x/1.55 -o one.h5 "$BATS_FILE_TMPDIR/library.h5"
    cp "$BATS_FILE_TMPDIR/library.h5" .
    dd if=library.h5 bs=1M status=none | rvs-template --reproducible -j 3 -s a:5050:5350:0.4:R=x/1.55 > two.h5
    h5diff one.h5 two.h5 /templates/a
}

@test "rvs-template: a library larger than the memory allowed streams through" {
    # 252 spectra of 40000 samples: 40 MB
    mock_library big.h5 4500 8500 5000 6000
    rvs-template -q --reproducible -s a:5050:5350:0.4:R=3000 -s b:7000:7200:0.4:R=3000 -o whole.h5 big.h5
    rvs-template -q --reproducible --max-mem 20M -s a:5050:5350:0.4:R=3000 -s b:7000:7200:0.4:R=3000 -o part.h5 big.h5
    h5diff whole.h5 part.h5 /templates/a
    h5diff whole.h5 part.h5 /templates/b
    mkdir tmp
    cat big.h5 | TMPDIR=$PWD/tmp rvs-template -q --reproducible --max-mem 20M -s a:5050:5350:0.4:R=3000 \
        -s b:7000:7200:0.4:R=3000 -o pipe.h5
    h5diff whole.h5 pipe.h5 /templates/a
    h5diff whole.h5 pipe.h5 /templates/b
    [ -z "$(ls -A tmp)" ]
    rm -r tmp
    # templates that are: 2 x 19 MB
    wide=(--pca 0 --no-ccf -s a:5010:5390:0.02:R=3000 -s b:5010:5390:0.02:R=2500)
    rvs-template -q --reproducible "${wide[@]}" -o whole.h5 -f "$BATS_FILE_TMPDIR/library.h5"
    mkdir tmp
    TMPDIR=$PWD/tmp rvs-template -q -f --reproducible --max-mem 38M "${wide[@]}" -o part.h5 "$BATS_FILE_TMPDIR/library.h5"
    h5diff whole.h5 part.h5 /templates
    [ -z "$(ls -A tmp)" ]
    rmdir tmp
    fails_with 4 '*absent: no room for 19.* MiB that --max-mem leaves no memory for*' env TMPDIR="$PWD/absent" \
        rvs-template -q --max-mem 38M "${wide[@]}" -o x.h5 "$BATS_FILE_TMPDIR/library.h5"
    fails_with 4 '*memory*' rvs-template -q --max-mem 5M -s a:5050:5350:0.4:R=3000 -o x.h5 big.h5
}

@test "rvs-template: normalisation, mapped parameters and cross-correlation set as asked for" {
    library=$BATS_FILE_TMPDIR/library.h5
    rvs-template -s a:5050:5350:0.4:R=3000 --norm none --log-param none --no-ccf -o none.h5 "$library"
    [ "$(values /templates/a/parlog none.h5)" = "0 0 0 0" ]
    run ! h5dump -H -g /templates/a/ccf none.h5
    fails_with 3 '*logg is 0 *no logarithm*' \
        rvs-template -q -s a:5050:5350:0.4:R=3000 --norm median --log-param teff,logg -o median.h5 "$library"
    rvs-template -s a:5050:5350:0.4:R=3000 --norm median --ccf-every 50 --ccf-vsini 0,50,300 -o median.h5 "$library"
    # 252 templates: 6 of them, each with three velocities
    [ "$(values /templates/a/ccf/vsini median.h5)" = "$(printf '0 50 300 %.0s' 1 2 3 4 5 6 | sed 's/ $//')" ]
    h5check median.h5 none.h5
}

@test "rvs-template refuses setups that make no sense" {
    cp "$BATS_FILE_TMPDIR/library.h5" .
    fails_with 2 '*no setup*' rvs-template -o t.h5 library.h5
    fails_with 2 '*NAME:MIN:MAX*' rvs-template -s a -o t.h5 library.h5
    fails_with 2 '*NAME:MIN:MAX*' rvs-template -s "$(printf 'a:%.0s' {1..500})" -o t.h5 library.h5
    fails_with 2 '*letters*' rvs-template -s ../a:5050:5350:0.4:R=3000 -o t.h5 library.h5
    fails_with 2 '*empty*' rvs-template -s a:5350:5050:0.4:R=3000 -o t.h5 library.h5
    fails_with 2 '*--ccf-every*' rvs-template -s a:5050:5350:0.4:R=3000 --no-ccf --ccf-every 2 -o t.h5 library.h5
    fails_with 2 '*--ccf-vsini*' rvs-template -s a:5050:5350:0.4:R=3000 --no-ccf --ccf-vsini 50 -o t.h5 library.h5
    fails_with 2 '*pixels*' rvs-template -s a:5050:5350:1e-9:R=3000 -o t.h5 library.h5
    fails_with 2 '*step*' rvs-template -s a:5050:5350:-1:R=3000 -o t.h5 library.h5
    fails_with 2 '*wavelength*' rvs-template -s a:5050:1e999:0.4:R=3000 -o t.h5 library.h5
    fails_with 2 '*unknown name*' rvs-template -s 'a:5050:5350:0.4:R=system("id")' -o t.h5 library.h5
    fails_with 2 '*deep*' rvs-template -s "a:5050:5350:0.4:R=$(printf '(%.0s' {1..100})" -o t.h5 library.h5
    fails_with 2 '*resolution R is 0*' rvs-template -s a:5050:5350:0.4:R=x-x -o t.h5 library.h5
    fails_with 2 '*--library-resolution: expression*foo*' rvs-template -s a:5050:5350:0.4:R=3000 --library-resolution foo -o t.h5 library.h5
    fails_with 2 "*library's own*" rvs-template -s a:5050:5350:0.4:R=3000 --library-resolution 2000 -o t.h5 library.h5
    fails_with 2 '*wider*' rvs-template -s a:5050:5350:0.4:FWHM=1e5 -o t.h5 library.h5
    fails_with 2 "*two setups are called 'a'*" rvs-template -s a:5050:5350:0.4:R=3000 -s a:5050:5350:0.4:R=2000 -o t.h5 library.h5
    fails_with 2 '*no parameter*mass*' rvs-template -s a:5050:5350:0.4:R=3000 --log-param mass -o t.h5 library.h5
    fails_with 2 '*vsini*' rvs-template -s a:5050:5350:0.4:R=3000 --ccf-vsini -5 -o t.h5 library.h5
    fails_with 5 '*CPU only, but for --train-nn*' rvs-template --device cuda -s a:5050:5350:0.4:R=3000 -o t.h5 library.h5
    fails_with 5 '*cuda*' rvs-template --train-nn --device cuda:99 -s a:5050:5350:0.4:R=3000 -o t.h5 library.h5
    fails_with 2 '*auto, cpu*' rvs-template --train-nn --device gpu -s a:5050:5350:0.4:R=3000 -o t.h5 library.h5
    fails_with 2 '*one input*' rvs-template -s a:5050:5350:0.4:R=3000 -o t.h5 library.h5 library.h5
}

@test "rvs-template refuses a library that does not cover a setup" {
    cp "$BATS_FILE_TMPDIR/library.h5" .
    fails_with 3 "*library.h5:/library: setup 'b' asks for 5050 to 5500*covers 5000.1 to 5400*" \
        rvs-template -s a:5050:5350:0.4:R=3000 -s b:5050:5500:0.4:R=3000 -o t.h5 library.h5
    fails_with 3 "*covers*" rvs-template -s a:4999:5350:0.4:R=3000 -o t.h5 library.h5
    # 5399.9 in vacuum is 5398.4 in air
    fails_with 3 "*in air*covers 4998.71 to 5398*" rvs-template -s a:5050:5399:0.4:R=3000:air -o t.h5 library.h5
}

@test "rvs-template: the resolution as a number, an expression, a table" {
    cp "$BATS_FILE_TMPDIR/library.h5" .
    printf '# Angstrom  FWHM\n5000 1.5\n5150 1.65\n5400 1.9\n' >fwhm.txt
    awk 'BEGIN { for (x = 5000; x <= 5400; x++) print x, x / (1.5 + (x - 5000) / 1000) }' >r.txt
    rvs-template -q -s a:5050:5350:0.4:FWHM=@fwhm.txt -s 'b:5050:5350:0.4:FWHM=1.5+(x-5000)/1000' \
        -s c:5050:5350:0.4:R=@r.txt -o t.h5 library.h5
    h5check t.h5
    # rounding moves an edge of the cut at 5 sigma, and with it a sample that weighs 1e-6
    h5diff -d 2e-5 t.h5 t.h5 /templates/a/lnflux /templates/b/lnflux
    h5diff -d 2e-4 t.h5 t.h5 /templates/a/lnflux /templates/c/lnflux
    h5dump -a /templates/a/resolution t.h5 | grep -q 'FWHM=@fwhm.txt'
    # the library's own, in quadrature: 1.5 of 2.5 leave 2
    printf '5000 1.5\n5400 1.5\n' >own.txt
    rvs-template -q -s a:5050:5350:0.4:FWHM=2.5 --library-resolution FWHM=@own.txt -o u.h5 library.h5
    rvs-template -q -s a:5050:5350:0.4:FWHM=2 --library-resolution none -o v.h5 library.h5
    h5diff -d 1e-6 u.h5 v.h5 /templates/a/lnflux
    fails_with 2 '*@ is not followed*' rvs-template -s a:5050:5350:0.4:R=@ -o x.h5 library.h5
    fails_with 3 '*absent.txt: cannot open*' rvs-template -s a:5050:5350:0.4:R=@absent.txt -o x.h5 library.h5
    printf '5060 3000\n5400 3000\n' >short.txt
    fails_with 3 '*short.txt*covers 5060 to 5400*not 5050 to 5350*' \
        rvs-template -s a:5050:5350:0.4:R=@short.txt -o x.h5 library.h5
    printf '5000 -1\n5400 -1\n' >negative.txt
    fails_with 2 '*resolution R is -1*' rvs-template -s a:5050:5350:0.4:R=@negative.txt -o x.h5 library.h5
    printf '5000 3000\n4000 3000\n' >order.txt
    fails_with 3 '*order.txt:2*' rvs-template -s a:5050:5350:0.4:R=@order.txt -o x.h5 library.h5
}

@test "rvs-template refuses damaged libraries" {
    cp "$BATS_FILE_TMPDIR/library.h5" good.h5
    damaged() {
        local text=$1
        shift
        cp good.h5 bad.h5
        h5edit bad.h5 "$@"
        fails_with 3 "$text" rvs-template -s a:5050:5350:0.4:R=3000 -o t.h5 bad.h5
    }
    damaged '*bad.h5:/library: is missing: fits2h5 makes*' delete /library
    damaged '*/library/flux*' delete /library/flux
    damaged '*/library/wavelength*' delete /library/wavelength
    damaged '*/library/parname*' delete /library/parname
    damaged '*/library/flux*' shape /library/flux 7,9
    damaged '*/library/params*' shape /library/params 252,7
    damaged '*same parameters*' set /library/params 0 5500
    damaged '*not finite*' set /library/params 5 nan
    damaged '*bad.h5:/library/wavelength: wavelengths do not increase at element 7*' set /library/wavelength 7 5000
    damaged '*bad.h5:/library: spectrum 1 of the library (teff 5000, logg 0, feh -3, alpha 0.4)*5150*not finite*' \
        set /library/flux 5501 inf
    damaged '*no flux*' fill /library/flux 0
    head -c 100000 good.h5 > bad.h5
    fails_with 3 '*bad.h5*' rvs-template -s a:5050:5350:0.4:R=3000 -o t.h5 bad.h5
    fails_with 3 '*empty*' rvs-template -s a:5050:5350:0.4:R=3000 -o t.h5 - </dev/null
    fails_with 2 '*' rvs-template -s a:5050:5350:0.4:R=3000 -f -o good.h5 good.h5
}

@test "rvs-template: an irregular library is no grid" {
    cp "$BATS_FILE_TMPDIR/library.h5" .
    for i in $(seq 0 4 1000); do
        set -- "$@" set /library/params "$i" "$((4000 + i * i % 997))" set /library/params "$((i + 2))" "$((i % 89))"
    done
    h5edit library.h5 "$@"
    fails_with 3 '*no regular grid*teff*logg 6*' \
        rvs-template --interpolator grid -s a:5050:5350:0.4:R=3000 -o t.h5 library.h5
    # but it can be triangulated
    rvs-template -s a:5050:5350:0.4:R=3000 -s b:5100:5300:0.4:R=3000 -o t.h5 library.h5 2>err
    [[ $(cat err) == *"no regular grid: 252 spectra in "*" simplices"* ]]
    h5check t.h5
    run ! h5ls t.h5/templates/a/grid
    h5diff t.h5 t.h5 /templates/a/simplex/corner /templates/b/simplex/corner
    rvs-template --interpolator simplex -s a:5050:5350:0.4:R=3000 -o s.h5 library.h5 2>err
    [[ $(cat err) == *"is triangulated: 252 spectra in "*" simplices"* ]]
    [ "$(values /templates/a/simplex/corner t.h5 | tr ' ' '\n' | sort -n | tail -1)" = 251 ]
}

@test "rvs-template: a library whose parameters follow from each other is refused" {
    cp "$BATS_FILE_TMPDIR/library.h5" .
    # logg from teff, in hundredths
    for i in $(seq 0 4 1004); do
        t=$((4000 + i * i % 997))
        g=$((50 + 4 * (t - 4000) * 100 / 997))
        set -- "$@" set /library/params "$i" $t set /library/params "$((i + 1))" "$((g / 100)).$(printf %02d $((g % 100)))"
    done
    h5edit library.h5 "$@"
    for how in auto simplex; do
        fails_with 3 '*252 spectra lie on a hyperplane: of teff, logg only 1 can be fitted*--param-keywords*' \
            rvs-template --interpolator $how -s a:5050:5350:0.4:R=3000 -o t.h5 library.h5
    done
    # one that lies beside is enough
    h5edit library.h5 set /library/params 1 5.5
    rvs-template -q --interpolator simplex -s a:5050:5350:0.4:R=3000 -o t.h5 library.h5
}

@test "rvs-template: nodes that are missing are filled and marked" {
    cp "$BATS_FILE_TMPDIR/library.h5" .
    # one spectrum moves to a temperature of its own: 83 more nodes there, and one where it was
    h5edit library.h5 set /library/params 0 5250
    rvs-template -s a:5050:5350:0.4:R=3000 -o t.h5 library.h5 2>err
    [[ $(cat err) == *"84 of 336 nodes"* ]]
    h5check t.h5
    [ "$(values /templates/a/grid/naxis t.h5)" = "4 6 7 2" ]
    [ "$(values /templates/a/filled t.h5 | tr ' ' '\n' | grep -c 1)" -eq 84 ]
}

@test "rvs-template: a parameter that has one value only stays an axis of one node" {
    mock_library one.h5 5000 5400 5000 5000
    rvs-template -s a:5050:5350:0.4:R=3000 -o t.h5 one.h5
    h5check t.h5
    [ "$(values /templates/a/grid/naxis t.h5)" = "1 6 7 2" ]
}

@test "rvs-template: a network learns the library, and says how well" {
    library=$BATS_FILE_TMPDIR/library.h5
    rvs-template --train-nn --nn-hidden 24,16 --nn-epochs 60 -j 1 -s a:5050:5350:0.4:R=3000 -s b:5100:5300:0.4:R=3000 \
        --no-ccf -o one.h5 "$library" 2>err
    [[ $(cat err) == *"setup 'a': the network is off by "*" rms, "*" at most"*"setup 'b': the network"* ]]
    h5check one.h5
    [[ $(values /templates/a/nn/size one.h5) == "4 24 16 "* ]]
    rvs-template -q --train-nn --nn-hidden 24,16 --nn-epochs 60 -j 3 -s a:5050:5350:0.4:R=3000 \
        -s b:5100:5300:0.4:R=3000 --no-ccf -o two.h5 "$library"
    h5diff one.h5 two.h5 /templates/a
    fails_with 2 '*need --train-nn*' rvs-template --nn-epochs 60 -s a:5050:5350:0.4:R=3000 -o t.h5 "$library"
    fails_with 2 '*--nn-hidden: 1.5 neurons*' \
        rvs-template --train-nn --nn-hidden 1.5 -s a:5050:5350:0.4:R=3000 -o t.h5 "$library"
    fails_with 2 '*--pca*' rvs-template --train-nn --pca 0 -s a:5050:5350:0.4:R=3000 -o t.h5 "$library"
}

@test "rvs-template: Kurucz stars, with the hole in their grid" {
    need_shared data/rv/kurucz_stds_v5.fit
    fits2h5 --vacuum -o library.h5 "$SPX_SHARED/data/rv/kurucz_stds_v5.fit"
    # the models are as blurred as an SDSS spectrum already
    fails_with 2 "*library's own*--library-resolution*" \
        rvs-template -s sdss:3800:9200:1:R=2100 --library-resolution R=1900 -o t.h5 library.h5
    rvs-template -s sdss:3800:9200:1:R=1850 --library-resolution R=1900 -o t.h5 library.h5 2>err
    [[ $(cat err) == *"1 of 90 nodes"* ]]
    h5check t.h5
    [ "$(values /templates/sdss/grid/axes t.h5)" = \
        "5000 5250 5500 5750 6000 6250 6500 6750 7000 4 4.5 -2 -1.5 -1 -0.5 0" ]
    # the one that is filled comes last: 5000/4.5/-0.5
    [[ $(values /templates/sdss/filled t.h5) == "0 "*" 0 1" ]]
    [[ $(values /templates/sdss/params t.h5) == *" 5000 4.5 -0.5" ]]
}

@test "rvs-template: PHOENIX spectra in air, for instruments in air and in vacuum" {
    need_shared data/rv/phoenix_subset
    fits2h5 --air -o library.h5 "$SPX_SHARED/data/rv/phoenix_subset"
    rvs-template -s air:5100:5900:0.1:R=20000:air -s vacuum:5100:5900:0.1:R=20000 -o t.h5 library.h5
    h5check t.h5
    [ "$(values /templates/air/grid/naxis t.h5)" = "4 3 1 1" ]
    # 5900 Angstrom in vacuum is 5898.4 in air: the same pixel of the same instrument sees other light
    run ! h5diff -q -d 0.01 t.h5 t.h5 /templates/air/lnflux /templates/vacuum/lnflux
    fails_with 3 '*in vacuum, the library covers 5001.*' rvs-template -s v:5000.5:5900:0.1:R=20000 -o u.h5 library.h5
}

@test "rvs-template: white dwarfs on irregular wavelengths" {
    need_shared data/rv/da_white_dwarfs_1d_nlte.fits.gz
    fits2h5 --air "$SPX_SHARED/data/rv/da_white_dwarfs_1d_nlte.fits.gz" |
        rvs-template -s sdss:3800:9200:1:R=1850 > t.h5
    h5check t.h5
    [ "$(values /templates/sdss/grid/naxis t.h5)" = "60 7" ]
    [ "$(values /templates/sdss/parlog t.h5)" = "1 0" ]
}

@test "rvs-template: BLAS is as fast as the processor, unless told not to be" {
    OPENBLAS_VERBOSE=2 specpipe-info 2>err >/dev/null
    grep -q '^Core:' err || skip "this OpenBLAS does not say what it uses"
    grep -q avx2 /proc/cpuinfo || skip "the processor has no AVX2"
    [[ $(tail -1 err) != *Prescott* ]]
    OPENBLAS_CORETYPE=Prescott OPENBLAS_VERBOSE=2 specpipe-info 2>err >/dev/null
    [ "$(cat err)" = "Core: Prescott" ]
}

@test "rvs-template tells how far off fits are between the nodes, and rvs-fit warns" {
    setup=(--library-resolution none -s r:5100:5500:0.4:FWHM=1.526)
    nodes() { # FILE TEFF LOGG FEH ALPHA
        specx-sim -q --library stars --step 0.1 --wavelength 5030,5580 --axis "teff=$2" --axis "logg=$3" \
            --axis "feh=$4" --axis "alpha=$5" && fits2h5 -q -o "$1" stars && rm -r stars
    }
    nodes coarse.h5 4500,5500,6500 2,3.5,5 -2,-1,0 0,0.4,0.8
    run -0 --separate-stderr rvs-template "${setup[@]}" -o coarse-t.h5 coarse.h5
    [[ $stderr == *'interpolation between nodes: fits at a signal-to-noise ratio of 30'*'feh'* && $stderr != *warning* ]]
    h5check coarse-t.h5
    # fits of stars whose noise does not matter, scaled to a signal-to-noise ratio of 30
    sim_epochs 100 1 5 stars.h5 arm=r:5100:5500 teff=4500:6500 logg=2:5 feh=-2:0 sn=1000:1001
    run -0 --separate-stderr rvs-fit -f --no-model "--vrange=-600,600" -t coarse-t.h5 -o rv.h5 stars.h5
    [[ $stderr == *'nodes of the library is expected to be off by: teff '*'feh '* ]]
    cp coarse-t.h5 wrong-t.h5
    h5edit wrong-t.h5 attr-number /templates/r/nodes sn -30
    fails_with 3 "*/templates/r/nodes: the attribute 'sn' is -30*" rvs-fit -f -t wrong-t.h5 -o rv2.h5 stars.h5
    read -ra told <<<"$(values /templates/r/nodes/error coarse-t.h5)"
    middle() { sort -g | awk '{ p[NR] = $1 } END { print p[int(NR / 2)], (p[int(0.84 * NR)] - p[int(0.16 * NR)]) / 2 }'; }
    for k in 0:TEFF 1:LOGG 2:FEH 3:ALPHAFE; do
        paste -d, <(h5table --csv -c "${k#*:},${k#*:}_ERR" rv.h5) <(h5table --csv -t /fibermap -c "${k#*:}" rv.h5) |
            tail -n +2 | awk -F, '{ print ($1 - $3) / $2 * 0.03, $2 / 0.03 }' >fits
        echo "$k $(cut -d' ' -f2 fits | middle) $(cut -d' ' -f1 fits | middle) ${told[*]:${k%:*}}" | awk '{ print
            exit !($6 / $2 > 0.7 && $6 / $2 < 1.4 && ($4 - $10)^2 < 0.2^2 && $14 / $5 > 0.4 && $14 / $5 < 2.5 && $18 == 1) }'
    done
    # where noise is more, and with another interpolator, there is nothing to warn of
    sim_epochs 20 1 5 faint.h5 arm=r:5100:5500 teff=4500:6500 logg=2:5 feh=-2:0 sn=10:11
    for word in cubic:faint.h5 grid:stars.h5; do
        run -0 --separate-stderr rvs-fit -f --no-model "--vrange=-600,600" --interpolator "${word%:*}" -t coarse-t.h5 \
            -o rv.h5 "${word#*:}"
        [[ $stderr != *'nodes of the library is expected'* ]]
    done
    # denser nodes; two of an abundance ratio, which are bent; two of another name, which tell nothing
    nodes dense.h5 4500,5000,5500,6000,6500 2,3,4,5 -2,-1.5,-1,-0.5,0 0,0.8
    rvs-template -q "${setup[@]}" -o dense-t.h5 dense.h5
    values /templates/r/nodes/error dense-t.h5 | awk '{ for (i = 6; i <= 12; i++) if ($i * $i > 0.15^2) exit 1; exit $16 != 1 }'
    h5edit dense.h5 strings /library/parname teff,logg,feh,beta
    run -0 --separate-stderr rvs-template -f "${setup[@]}" -o dense-t.h5 dense.h5
    [[ $stderr == *'linear in beta, with two nodes'* && $stderr != *'beta '[+-]* ]]
    [ "$(values /templates/r/nodes/error dense-t.h5 | cut -d' ' -f13-16)" = "1 1 1 0" ]
    # without components, or a grid, nothing is said
    for word in "--pca 0" "--interpolator simplex"; do
        # shellcheck disable=SC2086
        run -0 --separate-stderr rvs-template -f "${setup[@]}" $word -o none.h5 coarse.h5
        [[ $stderr != *'between nodes'* ]]
        run ! h5dump -H -g /templates/r/nodes none.h5
    done
}

@test "a spectrum brighter than numbers of the transforms can hold is refused by its number" {
    cp "$BATS_FILE_TMPDIR/library.h5" .
    h5edit library.h5 set /library/flux 1500 3e38
    fails_with 3 '*library.h5:/library: the flux of spectrum 0 of the library varies by more*leave the spectrum out*' \
        rvs-template -s a:5050:5350:0.4:R=3000 -o t.h5 library.h5
    [ ! -e t.h5 ]
}
