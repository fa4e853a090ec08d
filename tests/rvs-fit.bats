# rvs-fit: velocities and parameters of stars.
load common

# The data of the manual's examples: an exposure of 8 fibres (6 stars, 2 sky), three short arms, and their templates.
setup_file() {
    PATH=$SPX_BUILD/tests/helpers:$PATH
    mkdir "$BATS_FILE_TMPDIR/data"
    cd "$BATS_FILE_TMPDIR/data" && bash "$SPX_ROOT/tests/examples.sh"
}

data() {
    for f; do cp "$BATS_FILE_TMPDIR/data/$f" .; done
}

# column NAME,... FILE: values of columns of the table, a line a star.
column() {
    h5table --csv -c "$1" "$2" | tail -n +2
}

@test "rvs-fit: stars of an exposure, their velocities and models; sky fibres are left out" {
    data spectra.h5 templates.h5 truth-b0.h5
    rvs-fit -t templates.h5 -o rv.h5 spectra.h5
    h5check rv.h5
    h5table --csv -c OBJTYPE,TARGETID,VRAD truth-b0.h5 | grep TGT | cut -d, -f2,3 >truth
    column TARGETID,VRAD,VRAD_ERR rv.h5 >fit
    [ "$(wc -l <fit)" -eq 6 ]
    paste -d, truth fit | awk -F, '$1 != $3 || ($2 - $4)^2 > (4 * $5 + 1)^2 { exit 1 }'
    [ "$(h5table --csv -t /fibermap -c TARGETID rv.h5)" = "$(h5table --csv -c TARGETID rv.h5)" ]
    h5dump -H -d /rvfit/z/model rv.h5 | grep 'SIMPLE { ( 6, 251 )'
    # as text
    h5table --csv -s 5 rv.h5 >model.csv
    [ "$(head -n 1 model.csv)" = arm,wavelength,model ]
    [ "$(cut -d, -f1 model.csv | sort | uniq -c | tr -s ' \n' ' ')" = ' 1 arm 251 b 251 r 251 z ' ]
    rvs-fit -t templates.h5 --all-fibers --no-model -o all.h5 spectra.h5
    [ "$(column TARGETID all.h5 | wc -l)" -eq 8 ]
    run ! h5ls all.h5/rvfit/b
    h5check all.h5
}

@test "rvs-fit: the setup that it asks for is one that does" {
    data spectra.h5 templates.h5 library.h5
    local setup
    run --separate-stderr rvs-fit -t templates.h5 --arms r --vrange=-1500,1200 -o x.h5 spectra.h5
    [ "$status" -eq 3 ]
    setup=$(sed -n 's/.*rvs-template -s \([^ ]*\):\.\.\. .*/\1/p' <<<"$stderr")
    [[ $setup == r:6[0-9]*:6[0-9]* ]]
    rvs-template -q -s "$setup:0.5:FWHM=1.8" -o wider.h5 library.h5
    rvs-fit -q -t wider.h5 --arms r --vrange=-1500,1200 -o x.h5 spectra.h5
    # of the default range the arm's own ends do
    rvs-template -q -s r:6450:6550:0.5:FWHM=1.8 -o narrow.h5 library.h5
    fails_with 3 '*-s r:6400:6600:...*' rvs-fit -t narrow.h5 --arms r -o y.h5 spectra.h5
}

@test "rvs-fit: frames side by side are as good as merged ones, through a pipe too" {
    data frame-b0.h5 frame-r0.h5 frame-z0.h5 spectra.h5 templates.h5 library.h5
    rvs-fit --reproducible -j 1 -t templates.h5 -o merged.h5 spectra.h5
    rvs-fit --reproducible -j 3 -t templates.h5 -o frames.h5 frame-b0.h5 frame-r0.h5 frame-z0.h5
    h5table --csv merged.h5 >merged
    h5table --csv frames.h5 >frames
    cmp merged frames
    rvs-fit --reproducible -t templates.h5 <spectra.h5 >piped.h5
    h5diff piped.h5 merged.h5 /rvfit
    # a camera alone; an arm of another name
    rvs-fit -t templates.h5 -o one.h5 frame-r0.h5
    rvs-fit -t templates.h5 --arms r -o arm.h5 spectra.h5
    [ "$(column VRAD one.h5)" = "$(column VRAD arm.h5)" ]
    [ "$(column VRAD one.h5)" != "$(column VRAD merged.h5)" ]
    fails_with 2 '*no setup*' rvs-fit -t templates.h5 --map r=green -o x.h5 frame-r0.h5
    fails_with 2 '*no arm*' rvs-fit -t templates.h5 --map g=r -o x.h5 frame-r0.h5
    fails_with 3 "*arm 'r'*setup 'b'*another arm's: make one with rvs-template -s r:6400:6600:...*" \
        rvs-fit -t templates.h5 --map r=b -o x.h5 frame-r0.h5
    fails_with 3 'rvs-fit: frame-r0.h5: is an input twice: *' rvs-fit -t templates.h5 -o x.h5 frame-r0.h5 frame-r0.h5
    fails_with 3 'rvs-fit: templates.h5: holds no spectra*' rvs-fit -t templates.h5 -o x.h5 frame-r0.h5 templates.h5
    cp spectra.h5 damaged.h5
    h5edit damaged.h5 delete /spectra/r/wavelength
    fails_with 3 '*/spectra/r/wavelength*missing*' rvs-fit -t templates.h5 -o x.h5 damaged.h5
    fails_with 2 "*--arms*no arm 'x'*" rvs-fit -t templates.h5 --arms r,x -o x.h5 spectra.h5
    rvs-template -q -s x:6400:6600:0.5:FWHM=1.8 -s y:6400:6600:0.5:FWHM=1.8 -o others.h5 library.h5
    fails_with 3 '*no arm has a setup*' rvs-fit -t others.h5 -o x.h5 spectra.h5
}

@test "rvs-fit: rows of any number of inputs are one table, in memory that does not grow with their pixels" {
    local k few=() many=()
    data spectra.h5 templates.h5 frame-b0.h5 frame-r0.h5
    for k in $(seq 1 160); do
        cp --reflink=auto spectra.h5 s$k.h5
        many+=("s$k.h5")
    done
    few=("${many[@]:0:40}")
    fit=(rvs-fit -v -j 1 --device cpu --no-model --no-rotation --fix teff=5000 --fix logg=4 --fix feh=-1 --fix alpha=0.2
        -t templates.h5)
    # without a limit 160 take 35 MiB
    run -0 "${fit[@]}" --max-mem 16M -o few.h5 "${few[@]}"
    run -0 "${fit[@]}" --max-mem 16M -o many.h5 "${many[@]}"
    [[ $output == *' MiB of memory at most'* ]]
    "${fit[@]}" -o one.h5 spectra.h5
    column TARGETID,VRAD,TEFF,CHISQ_TOT one.h5 >one
    for k in $(seq 1 160); do cat one; done >each
    column TARGETID,VRAD,TEFF,CHISQ_TOT many.h5 | cmp - each
    # exposures of several cameras, one after another
    cp frame-b0.h5 b.h5
    cp frame-r0.h5 r.h5
    "${fit[@]}" -o two.h5 frame-b0.h5 frame-r0.h5 b.h5 r.h5
    "${fit[@]}" -o once.h5 frame-b0.h5 frame-r0.h5
    column TARGETID,VRAD once.h5 >one
    column TARGETID,VRAD two.h5 | cmp - <(cat one one)
}

@test "rvs-fit: components of the cross-correlation set are those of the templates' file, or made of it" {
    local arm
    data spectra.h5 templates.h5
    cp templates.h5 old.h5
    for arm in b r z; do h5edit old.h5 delete /templates/$arm/ccf/pca; done
    rvs-fit -q --reproducible -t templates.h5 -o new.h5 spectra.h5
    rvs-fit -q --reproducible -t old.h5 -o old-fit.h5 spectra.h5
    h5diff new.h5 old-fit.h5 /rvfit
    arm=$(h5ls templates.h5/templates/r/ccf/pca/component | sed 's/.*{\([0-9]*\),.*/\1/')
    h5edit templates.h5 shape /templates/r/ccf/pca/component $arm,2,5,2
    fails_with 3 '*templates.h5*cross-correlation set*not usable*' rvs-fit -t templates.h5 -o x.h5 spectra.h5
    h5edit templates.h5 shape /templates/r/ccf/pca/component $arm,2,8,2
    fails_with 3 '*templates.h5*of no use*' rvs-fit -t templates.h5 -o x.h5 spectra.h5
}

@test "rvs-fit: a list of inputs, a product of each line; the bytes are those of single runs" {
    data frame-b0.h5 frame-r0.h5 frame-z0.h5 templates.h5
    rvs-fit -q --reproducible -t templates.h5 -o first.h5 frame-b0.h5 frame-r0.h5
    rvs-fit -q --reproducible -t templates.h5 -o second.h5 frame-z0.h5
    mv first.h5 first-alone.h5
    mv second.h5 second-alone.h5
    printf '%s.h5\n' first second >outputs
    # the second line comes when the first product is there
    mkfifo lines
    timeout 60 rvs-fit -q --reproducible -t templates.h5 -o @outputs @- <lines &
    exec {feed}>lines
    printf 'frame-b0.h5\tframe-r0.h5\n' >&$feed
    until [ -e first.h5 ]; do sleep 0.05; done
    [ ! -e second.h5 ]
    printf 'frame-z0.h5\n' >&$feed
    exec {feed}>&-
    wait
    cmp first.h5 first-alone.h5
    cmp second.h5 second-alone.h5
    # one that fails harms no other
    rm first.h5 second.h5
    printf 'frame-b0.h5\tnone.h5\nframe-z0.h5\n' >lines.txt
    run rvs-fit -q --reproducible -t templates.h5 -o @outputs @lines.txt
    [ "$status" -eq 3 ]
    [[ $output == *"none.h5: cannot open"*"1 of 2 products failed"* ]]
    [ ! -e first.h5 ]
    cmp second.h5 second-alone.h5
    printf 'frame-b0.h5\tframe-r0.h5\n' >lines.txt
    run rvs-fit -q --reproducible -f -t templates.h5 -o @outputs @lines.txt
    [ "$status" -eq 2 ]
    [[ $output == *"has 2 names, and there were 1 lines"* ]]
    fails_with 2 '*goes with -o @FILE*' rvs-fit -t templates.h5 -o x.h5 @lines.txt
}

@test "rvs-fit: what lines of a list have alike is made once, and what they have not is not taken for it" {
    data frame-b0.h5 frame-r0.h5 templates.h5 library.h5 preproc-r0.fits psf-r0.fits
    # the same arm at other wavelengths, as many; and fewer
    fits2h5 -q preproc-r0.fits psf-r0.fits | specx-extract -q -w 6400,6599.5,0.798 -o moved.h5
    fits2h5 -q preproc-r0.fits psf-r0.fits | specx-extract -q -w 6410,6590,0.8 -o narrow.h5
    printf '%s\n' frame-b0.h5$'\t'frame-r0.h5 frame-b0.h5$'\t'frame-r0.h5 frame-r0.h5 moved.h5 moved.h5 narrow.h5 frame-r0.h5 frame-b0.h5$'\t'moved.h5 >lines
    printf 'rv%s.h5\n' 1 2 3 4 5 6 7 8 >outputs
    local options k
    rvs-template -q --norm median -s b:4990:5210:0.5:FWHM=1.2 -s r:6390:6610:0.5:FWHM=1.2 -o sharp.h5 library.h5
    for options in '-t templates.h5' '-t sharp.h5 --resolution-matrix --with-template' '-t templates.h5 --jitter fit --arms r'; do
        # shellcheck disable=SC2086
        rvs-fit -q --reproducible $options -f -o @outputs @lines
        for k in 1 2 3 4 5 6 7 8; do
            mv rv$k.h5 of-list-$k.h5
            # shellcheck disable=SC2046,SC2086
            rvs-fit -q --reproducible $options -f -o rv$k.h5 $(sed -n ${k}p lines)
            cmp rv$k.h5 of-list-$k.h5
        done
    done
    # templates that are replaced meanwhile
    cp templates.h5 now.h5
    printf '%s\n' rv1.h5 rv2.h5 >outputs
    rm rv1.h5 rv2.h5
    mkfifo fifo
    timeout 60 rvs-fit -q --reproducible -t now.h5 -f -o @outputs @- <fifo &
    exec {feed}>fifo
    echo frame-r0.h5 >&$feed
    until [ -e rv1.h5 ]; do sleep 0.05; done
    cp sharp.h5 then.h5
    mv then.h5 now.h5
    echo frame-r0.h5 >&$feed
    exec {feed}>&-
    wait
    mv rv2.h5 of-list.h5
    rvs-fit -q --reproducible -t now.h5 -f -o rv2.h5 frame-r0.h5
    cmp rv2.h5 of-list.h5
}

@test "rvs-fit: a single arm takes a single setup" {
    data frame-r0.h5 library.h5
    rvs-template -q -s any:6400:6600:0.5:FWHM=1.8 -o one.h5 library.h5
    rvs-fit -t one.h5 -o rv.h5 frame-r0.h5
    rvs-template -q -s any:6400:6600:0.5:FWHM=1.8 -s other:5000:5200:0.5:FWHM=1.8 -o two.h5 library.h5
    fails_with 3 '*--map*' rvs-fit -t two.h5 -o x.h5 frame-r0.h5
    rvs-fit -t two.h5 --map r=any -o mapped.h5 frame-r0.h5
    [ "$(column VRAD rv.h5)" = "$(column VRAD mapped.h5)" ]
    # arms are in lower case, whatever cameras are called: R1 has the arm r
    rvs-template -q -s R:6400:6600:0.5:FWHM=1.8 -s other:5000:5200:0.5:FWHM=1.8 -o upper.h5 library.h5
    rvs-fit -t upper.h5 --arms R -w R:6000,7000 -o upper-rv.h5 frame-r0.h5
    [ "$(column VRAD rv.h5)" = "$(column VRAD upper-rv.h5)" ]
}

@test "rvs-fit: chosen wavelengths, as if the files had no others" {
    data spectra.h5 library.h5 templates.h5 frame-r0.h5
    local w
    # numbers DATASET WHICH...: one a line
    numbers() {
        h5dump -y -A 0 -w 1 -m %.9g -d "$1" "${@:2}" spectra.h5 | grep -E '^ +[0-9.e+-]+,?$' | tr -d ' ,'
    }
    paste <(numbers /spectra/r/wavelength) <(numbers /spectra/r/flux -s 0,0 -c 1,251) \
        <(numbers /spectra/r/ivar -s 0,0 -c 1,251) | awk '{ print $1, $2, 1 / sqrt($3) }' >whole.txt
    awk '$1 >= 6450 && $1 <= 6550' whole.txt >short.txt
    [ "$(wc -l <short.txt)" -eq 125 ]
    for w in whole short; do fits2h5 -q --vacuum -o $w.h5 $w.txt; done
    rvs-fit -q -t templates.h5 --map spectrum=r -o short-rv.h5 short.h5
    rvs-fit -q -t templates.h5 --map spectrum=r --wavelength 6450,6550 -o whole-rv.h5 whole.h5
    h5check whole-rv.h5
    for w in model wavelength; do h5diff short-rv.h5 whole-rv.h5 /rvfit/spectrum/$w; done
    cmp <(h5table --csv short-rv.h5 | cut -d, -f2-) <(h5table --csv whole-rv.h5 | cut -d, -f2-)
    h5dump -g /provenance whole-rv.h5 | grep 'option: wavelength=6450,6550'

    # a library that is shorter than the arm
    rvs-template -q -s r:6450:6550:0.25:FWHM=1.1774 -o narrow.h5 library.h5
    fails_with 3 '*--wavelength*' rvs-fit -t narrow.h5 --resolution-matrix -o x.h5 frame-r0.h5
    rvs-fit -q -t narrow.h5 -w 6450,6550 --resolution-matrix -o matrix.h5 frame-r0.h5
    h5dump -H -d /rvfit/r/wavelength matrix.h5 | grep 'SIMPLE { ( 125 )'
    rvs-template -q -s r:6400:6600:0.25:FWHM=1.1774 -o wide.h5 library.h5
    rvs-fit -q -t wide.h5 --resolution-matrix -o all.h5 frame-r0.h5
    paste <(column VRAD,VRAD_ERR matrix.h5 | tr , ' ') <(column VRAD all.h5) |
        awk '($1 - $3)^2 > (3 * $2)^2 || $1 == $3 { exit 1 }'

    # in the memory that whole arms take
    h5merge -q --by rows --allow repeated -o many.h5 frame-r0.h5 frame-r0.h5 frame-r0.h5 frame-r0.h5 frame-r0.h5
    for w in 6000,7000 6402,6598; do
        rvs-fit -q -j 1 --max-mem 6M -t templates.h5 -w $w --resolution-matrix --no-model -o many-$w.h5 many.h5
    done

    # one arm; arms that have nothing of it
    rvs-fit -q -t templates.h5 -w b:5050,5150 -w 5000,7000 -o arms.h5 spectra.h5
    h5dump -H -d /rvfit/b/wavelength arms.h5 | grep 'SIMPLE { ( 125 )'
    h5dump -H -d /rvfit/r/wavelength arms.h5 | grep 'SIMPLE { ( 251 )'
    run ! h5ls arms.h5/rvfit/z
    fails_with 2 "*no arm 'x'*" rvs-fit -t templates.h5 -w x:1,2 -o x.h5 spectra.h5
    # an arm of the templates that the spectra lack, as where a camera failed
    data frame-b0.h5
    run --separate-stderr rvs-fit -t templates.h5 -w b:5050,5150 -w z:8550,8650 -w r:6450,6550 -o two.h5 \
        frame-b0.h5 frame-r0.h5
    [ "$status" -eq 0 ]
    [[ $stderr == *"warning: --wavelength z:8550,8650: the spectra have no arm 'z'"* ]]
    fails_with 2 "*'b' is not fitted*" rvs-fit -t templates.h5 --arms r -w b:5050,5150 -o x.h5 spectra.h5
    fails_with 2 "*nothing of 1-2*" rvs-fit -t templates.h5 -w r:1,2 -o x.h5 spectra.h5
    fails_with 2 "*nothing to fit*" rvs-fit -t templates.h5 -w 1,2 -o x.h5 spectra.h5
    fails_with 2 "*'5000' is not MIN,MAX or ARM:MIN,MAX" rvs-fit -t templates.h5 -w 5000 -o x.h5 spectra.h5
    fails_with 2 "*smaller*" rvs-fit -t templates.h5 -w 5100,5000 -o x.h5 spectra.h5
    fails_with 2 "*another range*" rvs-fit -t templates.h5 -w 5100,5200 -w 5000,5100 -o x.h5 spectra.h5
    fails_with 3 "*too few*" rvs-fit -t templates.h5 -w 6450,6452 -o x.h5 spectra.h5
}

@test "rvs-fit: an arm's name stands for its orders and exposures, too: b for b and b2" {
    data spectra.h5 templates.h5
    cp spectra.h5 orders.h5
    h5copy -i spectra.h5 -o orders.h5 -s /spectra/r -d /spectra/b2
    h5copy -i spectra.h5 -o orders.h5 -s /spectra/r -d /spectra/r2
    rvs-fit -q -t templates.h5 --arms b --map b2=r -o b.h5 orders.h5
    [ "$(h5ls b.h5/rvfit | grep -c '^[brz][0-9]* .*Group')" -eq 2 ]
    # one name for two arms, and a nearer one for one of them
    rvs-fit -q -t templates.h5 --arms b,r2 --map b=r --map b=b --map b2=r -w b:6450,6550 -w r2:6420,6480 -o w.h5 orders.h5
    run ! h5ls w.h5/rvfit/b
    h5dump -H -d /rvfit/b2/wavelength w.h5 | grep 'SIMPLE { ( 125 )'
    h5dump -H -d /rvfit/r2/wavelength w.h5 | grep 'SIMPLE { ( 75 )'
    # r and r2 alike
    rvs-fit -q -t templates.h5 -w r:6450,6550 --arms r -o r.h5 orders.h5
    h5dump -H -d /rvfit/r/wavelength r.h5 | grep 'SIMPLE { ( 125 )'
    h5dump -H -d /rvfit/r2/wavelength r.h5 | grep 'SIMPLE { ( 125 )'
    fails_with 2 "*--arms*no arm 'b3'*" rvs-fit -t templates.h5 --arms b3 -o x.h5 orders.h5
    fails_with 2 "*no arm 'x'*" rvs-fit -t templates.h5 --map x=b -o x.h5 orders.h5
}

@test "rvs-fit: selection of spectra" {
    data spectra.h5 templates.h5
    rvs-fit -t templates.h5 -o all.h5 spectra.h5
    rvs-fit -t templates.h5 --rows 2:5 -o some.h5 spectra.h5
    # fibre 3 sees the sky
    [ "$(column FIBER some.h5 | tr '\n' ' ')" = "2 4 " ]
    [ "$(column VRAD some.h5)" = "$(column VRAD all.h5 | sed -n 3,4p)" ]
    id=$(column TARGETID all.h5 | sed -n 2p)
    rvs-fit -t templates.h5 --targetid "$id" -o star.h5 spectra.h5
    [ "$(column VRAD star.h5)" = "$(column VRAD all.h5 | sed -n 2p)" ]
    fails_with 1 '*--all-fibers*' rvs-fit -t templates.h5 --rows 3:4 -o x.h5 spectra.h5
    fails_with 1 '*none of the 8*' rvs-fit -t templates.h5 --targetid 7 -o x.h5 spectra.h5
    fails_with 2 '*' rvs-fit -t templates.h5 --rows 3:9 -o x.h5 spectra.h5
}

@test "rvs-fit: quantities held, bounded, with priors; other models" {
    data spectra.h5 templates.h5
    rvs-fit -t templates.h5 --rows 0:3 -o free.h5 spectra.h5
    rvs-fit -t templates.h5 --rows 0:3 --fix teff=5321 --fix vsini=12 -o held.h5 spectra.h5
    [ "$(column TEFF,TEFF_ERR,VSINI held.h5 | sort -u)" = "5321,0,12" ]
    rvs-fit -t templates.h5 --rows 0:3 --no-rotation --vrange -20,60 -o bound.h5 spectra.h5
    column VSINI bound.h5 | awk '$1 != 0 { exit 1 }'
    column VRAD bound.h5 | awk '$1 < -20 || $1 > 60 { exit 1 }'
    # outside the range: at its end, with a warning
    column RVS_WARN bound.h5 | awk 'NR == 1 && int($1 / 2) % 2 == 0 { exit 1 }'
    rvs-fit -t templates.h5 --rows 0:3 --prior logg=4.4,0.001 -o prior.h5 spectra.h5
    column LOGG prior.h5 | awk '($1 - 4.4)^2 > 0.01^2 { exit 1 }'
    # 200 Angstrom each: 3 + 90 ln(5200/5000) = 6.5, and fewer for the others; the number that is asked for
    [ "$(column NPOLY_B,NPOLY_R,NPOLY_Z free.h5 | sort -u)" = "7,6,5" ]
    rvs-fit -t templates.h5 --rows 0:3 --npoly 9 -o nine.h5 spectra.h5
    [ "$(column NPOLY_B,NPOLY_R,NPOLY_Z nine.h5 | sort -u)" = "9,9,9" ]
    rvs-fit -t templates.h5 --rows 0:3 --continuum chebyshev --npoly 4 -o poly.h5 spectra.h5
    paste <(column VRAD poly.h5) <(column VRAD free.h5) <(column VRAD_ERR free.h5) |
        awk '($1 - $2)^2 > (2 * $3)^2 || $1 == $2 { exit 1 }'
    fails_with 2 "*no parameter 'mass': there are v, vsini, teff, logg, feh, alpha" rvs-fit -t templates.h5 --fix mass=1 -o x.h5 spectra.h5
    fails_with 2 '*NAME=VALUE*' rvs-fit -t templates.h5 --fix teff -o x.h5 spectra.h5
    fails_with 2 '*outside its range*' rvs-fit -t templates.h5 --fix v=2000 -o x.h5 spectra.h5
    fails_with 2 '*teff is fixed at 100000, outside its range 5000 to 6000*' \
        rvs-fit -t templates.h5 --fix teff=100000 -o x.h5 spectra.h5
    fails_with 2 '*vsini is fixed at 700 km/s, outside its range 0 to 500*' \
        rvs-fit -t templates.h5 --fix vsini=700 -o x.h5 spectra.h5
    rvs-fit -t templates.h5 --rows 0:1 --fix teff=6000 --fix feh=-1 -o x.h5 spectra.h5
    fails_with 2 '*sigma*' rvs-fit -t templates.h5 --prior v=0,0 -o x.h5 spectra.h5
    fails_with 2 "*--prior: '0' is not MEAN,SIGMA" rvs-fit -t templates.h5 --prior v=0 -o x.h5 spectra.h5
    fails_with 2 "*--vrange: '-300:300' is not MIN,MAX" rvs-fit -t templates.h5 --vrange -300:300 -o x.h5 spectra.h5
    fails_with 2 "*'6400:6600:0.8' is not *MIN,MAX" rvs-fit -t templates.h5 -w 6400:6600:0.8 -o x.h5 spectra.h5
    fails_with 2 '*--vrange 5 to -5 km/s: *smaller velocity first*' rvs-fit -t templates.h5 --vrange 5,-5 -o x.h5 spectra.h5
    fails_with 2 '*--vrange -300000 to 0 km/s: *half of that of light*' rvs-fit -t templates.h5 --vrange=-300000,0 -o x.h5 spectra.h5
    fails_with 2 '*--vsini-range 9 to 5 km/s: *smaller value first*' rvs-fit -t templates.h5 --vsini-range 9,5 -o x.h5 spectra.h5
    fails_with 3 '*wider setup*' rvs-fit -t templates.h5 --vrange=-9000,9000 -o x.h5 spectra.h5
    fails_with 2 '*exclude*' rvs-fit -t templates.h5 --no-rotation --vsini-range 0,10 -o x.h5 spectra.h5
}

@test "rvs-fit: with the spectra's own resolution matrices" {
    data spectra.h5 library.h5 templates.h5 truth-b0.h5
    # a narrow Gaussian of sigma 0.5 Angstrom; the matrices do the rest
    rvs-template -q library.h5 -o narrow.h5 --setup b:5000:5200:0.25:FWHM=1.1774 --setup r:6400:6600:0.25:FWHM=1.1774 \
        --setup z:8500:8700:0.25:FWHM=1.1774
    rvs-fit -t narrow.h5 --resolution-matrix -o rv.h5 spectra.h5
    h5table --csv -c OBJTYPE,VRAD truth-b0.h5 | grep TGT | cut -d, -f2 >truth
    paste truth <(column VRAD rv.h5) <(column VRAD_ERR rv.h5) | awk '($1 - $2)^2 > (4 * $3 + 1)^2 { exit 1 }'
    # the matrices describe the spectra better than a Gaussian of one width
    rvs-fit -q -t templates.h5 -o plain.h5 spectra.h5
    paste <(column CHISQ_TOT rv.h5) <(column CHISQ_TOT plain.h5) | awk '{ a += $1; b += $2 } END { exit a > b }'
    data frame-b0.h5
    h5edit frame-b0.h5 delete /frame/resolution
    fails_with 3 "*: arm 'b' of the spectra *without --resolution-matrix*" rvs-fit -t narrow.h5 --resolution-matrix -o x.h5 frame-b0.h5
    fails_with 2 '*--resolution-matrix*' rvs-fit -t narrow.h5 --lsf-sigma 1 -o x.h5 spectra.h5
}

@test "rvs-fit: the width of templates is theirs; wider ones than the resolution matrices are flagged" {
    data frame-r0.h5 library.h5
    for width in 0.9 1.7 2.4; do
        rvs-template -q library.h5 -o t$width.h5 --setup r:6400:6600:0.25:FWHM=$width
        rvs-fit -t t$width.h5 --resolution-matrix --no-model -o rv$width.h5 frame-r0.h5 2>log$width
    done
    # the same stars through both, but for aliases in the narrow ones
    paste -d, <(column FEH,FEH_ERR,RVS_WARN rv0.9.h5) <(column FEH,RVS_WARN rv1.7.h5) | awk -F, '{
        print; n++; d = ($1 - $4) / $2; bad += d * d > 1 || int($3 / 2048) % 2 || int($5 / 2048) % 2 }
        END { exit bad > 0 || n != 6 }'
    run ! grep -q 2048 log0.9 log1.7
    grep -q 'warning: 6 of 6 spectra: the templates are wider than the resolution matrix' log2.4
    grep -q 'RVS_WARN bits.* 2048: 6' log2.4
    run ! grep -q FWHM log0.9 log1.7 log2.4
    # hardly wider than a bin; and without the matrices, not as wide as these
    rvs-template -q library.h5 -o t0.5.h5 --setup r:6400:6600:0.25:FWHM=0.5
    rvs-fit -t t0.5.h5 --resolution-matrix --no-model -o rv0.5.h5 frame-r0.h5 2>&1 |
        grep "warning: arm 'r': lines of the templates have a FWHM of 0.53 Angstrom, less than 1.1 bins of 0.80: .* FWHM=1.60"
    rvs-fit -t t0.9.h5 --no-model -o wide.h5 frame-r0.h5 2>&1 |
        grep "warning: arm 'r': lines of the spectra .* 1.4. Angstrom .* templates 0.92: vsini will be too large, .* --resolution-matrix"
    rvs-fit -t t2.4.h5 --no-model -o broad.h5 frame-r0.h5 2>&1 | grep "templates 2.41: vsini below [78][0-9] km/s will come out as 0"
    data templates.h5
    rvs-fit -t templates.h5 --no-model -o right.h5 frame-r0.h5 2>log
    run ! grep -q FWHM log
    rvs-fit -q -t t1.7.h5 --resolution-matrix --lsf-sigma 0.722 --no-model -o given.h5 frame-r0.h5
    h5diff -p 1e-6 rv1.7.h5 given.h5 /rvfit/table
    fails_with 2 "*'r' have a line-spread function of sigma 0.7219 *--lsf-sigma says 0.5: leave it out*" \
        rvs-fit -t t1.7.h5 --resolution-matrix --lsf-sigma 0.5 -o x.h5 frame-r0.h5
    # a table's values are not in the file
    printf '6000 0.9\n7000 0.9\n' >width.txt
    rvs-template -q library.h5 -o table.h5 --setup r:6400:6600:0.25:FWHM=@width.txt
    fails_with 3 "*'r' do not say the width of their line-spread function ('FWHM=@width.txt'): give its sigma (--lsf-sigma)*" \
        rvs-fit -t table.h5 --resolution-matrix -o x.h5 frame-r0.h5
    rvs-fit -q -t table.h5 --resolution-matrix --lsf-sigma 0.3822 --no-model -o table-rv.h5 frame-r0.h5
}

# Bins of 3 Angstrom, lines of 2.35 bins, no noise: parameters are off by aliases of the templates alone, in proportion to the
# signal-to-noise ratio, 90 here.
@test "rvs-fit: templates that are not warned of leave no bias of 0.1 of the errors at a signal-to-noise ratio of 30" {
    specx-sim -q --arm r --camera dispersion=2.5,pitch=9,width=1.2 -w 5600,7200 --readnoise 2 --fibers 25 --sky-fibers 0 --cosmics 0 \
        --bad-columns 0 --no-sky --no-noise --seed 7 --snr 90 --teff 5200:5800 --logg 3.7:4.3 --feh=-0.8:-0.2 --alpha 0 --vsini 0:4 \
        --truth truth.h5 -o image.h5
    specx-extract -q -w 5800,7180,3 -o frame.h5 image.h5
    specx-sim -q --library lib -w 5700,7300 --axis teff=5000,5500,6000 --axis logg=3.5,4,4.5 --axis feh=-1,-0.5,0 --axis alpha=0
    fits2h5 -q lib -o lib.h5
    rm -r lib
    column FEH truth.h5 >put
    for width in 3 3.3 6; do
        rvs-template -q -s "r:5740:7240:0.75:FWHM=$width" -o "t$width.h5" lib.h5
        rvs-fit -t "t$width.h5" --resolution-matrix --no-model -o "rv$width.h5" frame.h5 2>"log$width"
        column FEH,FEH_ERR "rv$width.h5" | paste -d, - put | awk -F, '{ print ($1 - $3) / $2 }' | sort -g | sed -n 13p >"off$width"
    done
    grep -q "warning: arm 'r': lines of the templates have a FWHM of 3.04 Angstrom, less than 1.1 bins of 3.00" log3
    run ! grep -q FWHM log3.3 log6
    paste off3 off3.3 off6
    paste off3 off3.3 off6 | awk '{ exit !($1 > 0.3 && $2 * $2 < 0.3 ^ 2 && $3 * $3 < 0.05 ^ 2) }'
}

@test "rvs-fit: from a former fit; outliers" {
    data spectra.h5 templates.h5 frame-r0.h5
    rvs-fit -q -t templates.h5 -o first.h5 spectra.h5
    rvs-fit -t templates.h5 --start first.h5 -o second.h5 spectra.h5
    h5check first.h5 second.h5
    paste <(column VRAD,VRAD_ERR first.h5 | tr , ' ') <(column VRAD,VRAD_CCF second.h5 | tr , ' ') |
        awk '($1 - $3)^2 > (0.02 * $2)^2 || tolower($4) != "nan" { exit 1 }'
    # the rows are found by their names; what is not there starts as ever
    rvs-fit -q -t templates.h5 --rows 4:8 -o part.h5 spectra.h5
    run --separate-stderr rvs-fit -t templates.h5 --start part.h5 -o third.h5 spectra.h5
    # shellcheck disable=SC2154
    [[ $stderr == *"3 of 6 spectra start from the cross-correlation"* ]]
    fails_with 3 '*frame-r0.h5:/rvfit/table*' rvs-fit -t templates.h5 --start frame-r0.h5 -o x.h5 spectra.h5
    for k in 30 90 150; do echo "set /spectra/r/flux $k 1e5"; done | xargs h5edit spectra.h5
    rvs-fit -q -t templates.h5 -o spoilt.h5 spectra.h5
    rvs-fit -q -t templates.h5 --reject 2 --reject-sigma 6 -o clean.h5 spectra.h5
    [ "$(column NREJECT spoilt.h5 | sort -u)" = 0 ]
    column NREJECT clean.h5 | awk 'NR == 1 && ($1 < 3 || $1 > 6) || $1 > 0 && NR > 1 { exit 1 }'
    paste <(column VRAD,VRAD_ERR first.h5 | tr , ' ') <(column VRAD clean.h5) |
        awk '($1 - $3)^2 > $2^2 { exit 1 }'
    fails_with 2 '*--reject only*' rvs-fit -t templates.h5 --reject-sigma 6 -o x.h5 spectra.h5
}

@test "rvs-fit: bad spectra keep their rows, and nothing fitted is a failure" {
    data spectra.h5 templates.h5
    rvs-fit -t templates.h5 -o good.h5 spectra.h5
    # fibre 1: no information in any arm
    for arm in b r z; do
        for k in $(seq 251 501); do echo "set /spectra/$arm/ivar $k 0"; done | xargs h5edit spectra.h5
    done
    run --separate-stderr rvs-fit -t templates.h5 -o bad.h5 spectra.h5
    [ "$status" -eq 0 ]
    # run sets it
    # shellcheck disable=SC2154
    [[ $stderr == *"1 of 6 spectra could not be fitted (RVS_WARN 32): 1 with no good pixel in any arm"*"(row 1)"* ]]
    h5check bad.h5
    [ "$(column RVS_WARN bad.h5 | sed -n 2p)" -eq 32 ]
    [[ $(column VRAD bad.h5 | sed -n 2p) == *[Nn][Aa][Nn]* ]]
    cmp <(h5table --csv good.h5 | sed 3d) <(h5table --csv bad.h5 | sed 3d)
    [ "$(h5dump -d /rvfit/r/model -s 1,0 -c 1,251 bad.h5 | grep '^ *(1' | tr -d ' ' | sed 's/.*)://' | tr ',' '\n' |
        sort -u | tr -d '\n')" = 0 ]
    cp spectra.h5 dark.h5
    for arm in b r z; do h5edit dark.h5 fill /spectra/$arm/flux 0; done
    fails_with 1 '*none of 6 spectra*: 1 with no good pixel*, 5 with no flux (row * is the first)*' \
        rvs-fit -t templates.h5 -o x.h5 dark.h5
    for arm in b r z; do h5edit spectra.h5 fill /spectra/$arm/mask 1; done
    fails_with 1 '*none of 6 spectra*: 6 with no good pixel*' rvs-fit -t templates.h5 -o x.h5 spectra.h5
    # five pixels of one arm, fewer than the continuum has functions
    for arm in b r z; do h5edit dark.h5 fill /spectra/$arm/ivar 0; done
    for k in $(seq 20 24); do echo "set /spectra/r/ivar $k 1"; done | xargs h5edit dark.h5
    fails_with 1 '*: 5 with no good pixel*, 1 with no more good pixels than functions of the continuum*' \
        rvs-fit -t templates.h5 -o x.h5 dark.h5
}

@test "rvs-fit asks of exposures of lamps whether they are stars" {
    data frame-r0.h5 lamp-r0-1.h5 templates.h5
    rvs-fit -t templates.h5 -o stars.h5 frame-r0.h5 2>stars
    run ! grep 'spectra of stars' stars
    rvs-fit -t templates.h5 -o lamp.h5 lamp-r0-1.h5 2>lamp
    grep 'warning: lamp-r0-1.h5: OBSTYPE in its header is FLAT: are these spectra of stars?' lamp
    # other words of the same, and light of the sun
    local of says
    for of in "FLAVOR  = 'arc     '" "IMAGETYP= 'dome flat'" "IMAGETYP= 'COMP    '"; do
        h5edit frame-r0.h5 strings /frame/header "$of"
        rvs-fit -t templates.h5 -f -o lamp.h5 frame-r0.h5 2>lamp
        grep "warning: frame-r0.h5: ${of%%[ =]*} in its header is .*: are these" lamp
    done
    for says in "OBSTYPE = 'TWILIGHT FLAT'" "FLAVOR  = 'science '" "IMAGETYP= 'search  '"; do
        h5edit frame-r0.h5 strings /frame/header "$says"
        rvs-fit -t templates.h5 -f -o stars.h5 frame-r0.h5 2>stars
        run ! grep 'spectra of stars' stars
    done
}

@test "rvs-fit warns of variances that are too large, by chi squared of all stars" {
    local arm factor
    data spectra.h5 templates.h5
    for factor in 1 0.67; do
        cp spectra.h5 scaled.h5
        for arm in b r z; do h5edit scaled.h5 scale /spectra/$arm/ivar $factor; done
        rvs-fit -t templates.h5 -f -o rv.h5 scaled.h5 2>says.$factor
    done
    grep 'warning: median chi2 a degree of freedom is 0.[67].*, and should be above 0.8: the variance' says.0.67
    run ! grep 'degree of freedom' says.1
}

@test "rvs-fit refuses what it cannot use" {
    data spectra.h5 templates.h5 frame-r0.h5
    fails_with 2 '*--templates*' rvs-fit -o x.h5 spectra.h5
    fails_with 3 '*/templates*' rvs-fit -t spectra.h5 -o x.h5 spectra.h5
    fails_with 3 '*' rvs-fit -t templates.h5 -o x.h5 templates.h5
    fails_with 2 '*--templates spectra.h5: is spectra, and templates.h5 holds templates*' \
        rvs-fit -t spectra.h5 -o x.h5 templates.h5
    fails_with 2 '*' rvs-fit -f -t templates.h5 -o spectra.h5 spectra.h5
    fails_with 2 '*' rvs-fit -f -t templates.h5 -o templates.h5 spectra.h5
    fails_with 5 '*cuda*' rvs-fit --device cuda:99 -t templates.h5 -o x.h5 spectra.h5
    head -c 20000 spectra.h5 >short.h5
    fails_with 3 '*short.h5*' rvs-fit -t templates.h5 -o x.h5 short.h5
    h5edit templates.h5 set /templates/r/grid/node 3 100000
    fails_with 3 '*templates.h5*' rvs-fit -t templates.h5 -o x.h5 frame-r0.h5
    local how
    for how in 'fill grid/naxis 2000000000' 'set ccf/vsini 1 inf' 'set ccf/vsini 0 -1' 'set ccf/params 3 nan' 'set params 3 nan'; do
        data templates.h5
        # shellcheck disable=SC2086
        h5edit templates.h5 ${how/ / /templates/r/}
        fails_with 3 "*templates.h5:/templates/r/$(cut -d' ' -f2 <<<"$how"): *" rvs-fit -t templates.h5 -o x.h5 frame-r0.h5
    done
}

@test "rvs-fit finds rvspecfit's minima, or deeper ones, for 106 mock stars" {
    need_shared data/rv/mock-coadd.fits.gz data/rv/mock-rvspecfit.csv data/rv/mock-truth.csv
    mock_library library.h5
    rvs-template -q --straight-lines library.h5 -o templates.h5 --ccf-every 10 --setup b:3500:5900:0.4:R=x/1.55 \
        --setup r:5660:7720:0.4:R=x/1.55 --setup z:7420:9924:0.4:R=x/1.55
    rm library.h5
    fits2h5 -q "$SPX_SHARED/data/rv/mock-coadd.fits.gz" |
        rvs-fit -q --templates templates.h5 --interpolator grid --continuum rbf --no-dichroic \
                --no-model -o rv.h5
    column NEG2LOGL rv.h5 >ours
    tail -n +2 "$SPX_SHARED/data/rv/mock-rvspecfit.csv" | sed 's/.*,//' >theirs
    [ "$(wc -l <ours)" -eq 106 ]
    paste ours theirs | awk '$1 > $2 + 0.01 { print "star " NR-1 ": " $1 " against " $2; bad = 1 } END { exit bad }'
    # errors of v mean what they say
    paste -d, <(column VRAD,VRAD_ERR rv.h5) <(tail -n +2 "$SPX_SHARED/data/rv/mock-truth.csv") |
        awk -F, '{ p = ($1 - $8) / $2; s += p * p; m += p } p * p > 16 { bad = 1 }
            END { rms = sqrt(s / NR); print rms, m / NR; exit bad || rms < 0.85 || rms > 1.2 }'
    column SUCCESS rv.h5 | awk '$1 != 1 { exit 1 }'
    # cubic interpolation: errors of all quantities mean what they say
    fits2h5 -q "$SPX_SHARED/data/rv/mock-coadd.fits.gz" |
        rvs-fit -q --templates templates.h5 --no-dichroic --no-model -o cubic.h5
    column SUCCESS cubic.h5 | awk '$1 != 1 { exit 1 }'
    # no random point leads lower (make check-science tries 20 a star)
    fits2h5 -q -o coadd.h5 "$SPX_SHARED/data/rv/mock-coadd.fits.gz"
    rv_starts templates.h5 coadd.h5 1
    # of a hot, metal-poor star there is a minimum on each side of the strongest Balmer lines: this one is not at 10000 K
    sim_survey 49 1 hot.h5 mock
    rvs-fit -q --templates templates.h5 --no-dichroic --no-model --rows 48:49 -o hot-rv.h5 hot.h5
    paste -d, <(column TEFF,TEFF_ERR,FEH,FEH_ERR hot-rv.h5) <(h5table --csv -t /fibermap -c TEFF,FEH hot-rv.h5 | tail -n 1) |
        awk -F, '{ print; exit !(($1 - $5)^2 < (5 * $2)^2 && ($3 - $6)^2 < (5 * $4)^2) }'
    # a cool, metal-poor star of a signal-to-noise ratio of 13, whose valley ends at a dwarf: not where it is a giant
    sim_survey 54 5213 far.h5 mock
    rv_starts templates.h5 far.h5 3 cubic 53 53
    # most stars have another minimum along the velocity, far above
    column VRAD,VRAD_ALT,DCHISQ_ALT cubic.h5 | awk -F, 'tolower($2) ~ /nan/ { next }
        ($1 - $2)^2 < 60^2 || $3 < 50 { exit bad = 1 } { n++ } END { print n; exit bad || n < 60 }'
    column VRAD,VRAD_ERR,TEFF,TEFF_ERR,LOGG,LOGG_ERR,FEH,FEH_ERR,ALPHAFE,ALPHAFE_ERR cubic.h5 >fit
    tail -n +2 "$SPX_SHARED/data/rv/mock-truth.csv" | awk -F, '{ print $6, $2, $3, $4, $5 }' OFS=, >truth
    # half of the width that holds 68 %, with a statistical error of 0.08; interpolation between the nodes adds to it
    for k in 1 2 3 4 5; do
        paste -d, fit truth | awk -F, -v k=$k '{ print ($(2 * k - 1) - $(10 + k)) / $(2 * k) }' | sort -g |
            awk -v k=$k '{ p[NR] = $1 } END { w = (p[90] - p[17]) / 2; print k, w
                exit !(w > 0.85 && w <= (k == 1 ? 1.15 : 1.3)) }'
    done
}

@test "rvs-fit: interpolators, with principal components and without" {
    data spectra.h5 templates.h5 library.h5
    rvs-template -q --pca 0 -o whole.h5 library.h5 --setup b:5000:5200:0.4:FWHM=1.6 --setup r:6400:6600:0.4:FWHM=1.8 \
        --setup z:8500:8700:0.4:FWHM=2
    run ! h5ls whole.h5/templates/b/pca
    rvs-template -q --pca 1e-6 -o parts.h5 library.h5 --setup b:5000:5200:0.4:FWHM=1.6 \
        --setup r:6400:6600:0.4:FWHM=1.8 --setup z:8500:8700:0.4:FWHM=2
    h5check parts.h5
    rvs-fit -q -t whole.h5 -o a.h5 spectra.h5
    rvs-fit -q -t parts.h5 -o b.h5 spectra.h5
    rvs-fit -q -t parts.h5 --interpolator grid -o c.h5 spectra.h5
    rvs-fit -q -t whole.h5 --interpolator grid -o d.h5 spectra.h5
    paste <(column VRAD,VRAD_ERR a.h5 | tr , ' ') <(column VRAD b.h5) |
        awk '($1 - $3)^2 > (0.01 * $2)^2 { exit 1 }'
    cmp <(h5table --csv c.h5) <(h5table --csv d.h5)
    # a triangulation of a regular grid is linear between its nodes as well; a star at a node fits as well
    rvs-template -q --interpolator simplex -o corners.h5 library.h5 --setup b:5000:5200:0.4:FWHM=1.6 \
        --setup r:6400:6600:0.4:FWHM=1.8 --setup z:8500:8700:0.4:FWHM=2
    rvs-fit -q -t corners.h5 -o e.h5 spectra.h5
    h5check e.h5
    column SUCCESS e.h5 | awk '$1 != 1 { exit 1 }'
    paste <(column VRAD,VRAD_ERR a.h5 | tr , ' ') <(column VRAD e.h5) | awk '($1 - $3)^2 > (2 * $2)^2 { exit 1 }'
    fails_with 3 '*no regular grid*' rvs-fit -t corners.h5 --interpolator cubic -o x.h5 spectra.h5
    fails_with 3 '*no triangulation*--interpolator simplex' rvs-fit -t parts.h5 --interpolator simplex -o x.h5 spectra.h5
    h5edit corners.h5 set /templates/b/simplex/corner 3 1000
    fails_with 3 '*corners.h5*simplex/corner*1000*' rvs-fit -t corners.h5 -o x.h5 spectra.h5
    h5edit parts.h5 set /templates/b/pca/component 3 nan
    fails_with 3 '*parts.h5*component*not finite*' rvs-fit -t parts.h5 -o x.h5 spectra.h5
    h5edit templates.h5 shape /templates/r/pca/coefficient 3,2
    fails_with 3 '*templates.h5*coefficient*' rvs-fit -t templates.h5 -o x.h5 spectra.h5
}

@test "rvs-fit: an F star of SDSS with Kurucz models, a white dwarf with its own" {
    need_shared data/rv/kurucz_stds_v5.fit data/rv/spec-3128-54776-0008.fits data/rv/da_white_dwarfs_1d_nlte.fits.gz \
        data/rv/spec-0266-51602-0031.fits
    cp "$SPX_SHARED"/data/rv/spec-*.fits .
    fits2h5 -q --vacuum "$SPX_SHARED/data/rv/kurucz_stds_v5.fit" |
        rvs-template -q -s sdss:3780:9250:1:R=1900 --library-resolution R=1900 -o kurucz.h5
    fits2h5 -q spec-3128-54776-0008.fits | rvs-fit -q -t kurucz.h5 --no-dichroic -o f.h5
    column VRAD,TEFF,FEH f.h5 |
        awk -F, '{ exit !(($1 + 42.5)^2 < 4^2 && ($2 - 5704)^2 < 300^2 && ($3 + 0.64)^2 < 0.4^2) }'
    fits2h5 -q --air "$SPX_SHARED/data/rv/da_white_dwarfs_1d_nlte.fits.gz" |
        rvs-template -q -s sdss:3780:9250:1.2:R=1800 --library-resolution none -o da.h5
    fits2h5 -q spec-0266-51602-0031.fits -o wdspec.h5
    rvs-fit -q -t da.h5 --no-dichroic -o wd.h5 wdspec.h5
    column VRAD,TEFF,LOGG wd.h5 |
        awk -F, '{ exit !($1^2 < 30^2 && ($2 - 11500)^2 < 1500^2 && $3 > 7.5 && $3 < 9) }'
    # a network says the same
    fails_with 3 '*no network*' rvs-fit -q -t da.h5 --interpolator nn -o x.h5 wdspec.h5
    fits2h5 -q --air "$SPX_SHARED/data/rv/da_white_dwarfs_1d_nlte.fits.gz" |
        rvs-template -q -s sdss:3780:9250:1.2:R=1800 --library-resolution none --train-nn --nn-hidden 48,48 \
            --nn-epochs 200 -o net.h5
    h5check net.h5
    rvs-fit -q -t net.h5 --interpolator nn --no-dichroic -o nn.h5 wdspec.h5
    paste <(column VRAD,VRAD_ERR,TEFF,TEFF_ERR wd.h5 | tr , ' ') <(column VRAD,TEFF nn.h5 | tr , ' ') |
        awk '{ exit !(($1 - $5)^2 < (0.3 * $2)^2 && ($3 - $6)^2 < $4^2) }'
    h5edit net.h5 set /templates/sdss/nn/size 1 49
    fails_with 3 '*net.h5*nn/weight*' rvs-fit -q -t net.h5 --interpolator nn -o x.h5 wdspec.h5
    # the templates do not reach the spectrum
    fits2h5 -q --vacuum "$SPX_SHARED/data/rv/kurucz_stds_v5.fit" |
        rvs-template -q -s sdss:4000:6000:1:R=1900 --library-resolution R=1900 -o narrow.h5
    fits2h5 -q spec-3128-54776-0008.fits -o f-spec.h5
    fails_with 3 '*wider setup*' rvs-fit -t narrow.h5 -o x.h5 f-spec.h5
}

@test "rvs-fit: the F star and the white dwarf with every interpolator of a grid" {
    need_shared data/rv/kurucz_stds_v5.fit data/rv/spec-3128-54776-0008.fits data/rv/da_white_dwarfs_1d_nlte.fits.gz \
        data/rv/spec-0266-51602-0031.fits
    cp "$SPX_SHARED"/data/rv/spec-*.fits .
    for grid in grid simplex; do
        fits2h5 -q --vacuum "$SPX_SHARED/data/rv/kurucz_stds_v5.fit" |
            rvs-template -q --interpolator $grid -s sdss:3780:9250:1:R=1900 --library-resolution R=1900 -o f-$grid.h5
        fits2h5 -q --air "$SPX_SHARED/data/rv/da_white_dwarfs_1d_nlte.fits.gz" |
            rvs-template -q --interpolator $grid -s sdss:3780:9250:1.2:R=1800 --library-resolution none -o da-$grid.h5
    done
    for how in grid:grid cubic:grid simplex:simplex; do
        fits2h5 -q spec-3128-54776-0008.fits |
            rvs-fit -q -f --interpolator ${how%:*} -t f-${how#*:}.h5 --no-dichroic -o f.h5
        column VRAD,TEFF,FEH,SUCCESS f.h5 | awk -F, '{ print
            exit !(($1 + 42.5)^2 < 4^2 && ($2 - 5704)^2 < 300^2 && ($3 + 0.64)^2 < 0.45^2 && $4 == 1) }'
        fits2h5 -q spec-0266-51602-0031.fits |
            rvs-fit -q -f --interpolator ${how%:*} -t da-${how#*:}.h5 --no-dichroic -o wd.h5
        column VRAD,TEFF,LOGG,SUCCESS wd.h5 |
            awk -F, '{ print; exit !($1^2 < 30^2 && ($2 - 11500)^2 < 1500^2 && $3 > 7.5 && $3 < 9 && $4 == 1) }'
    done
}

@test "rvs-fit: --with-template writes templates on all bins of the arms, sharp and with their continuum" {
    data spectra.h5 templates.h5 library.h5
    fails_with 2 '*--with-template goes with --resolution-matrix*' \
        rvs-fit -t templates.h5 --with-template -o x.h5 spectra.h5
    fails_with 2 '*--no-model*' rvs-fit -t templates.h5 --resolution-matrix --with-template --no-model -o x.h5 spectra.h5
    fails_with 3 '*rvs-template --norm median*' \
        rvs-fit -t templates.h5 --resolution-matrix --with-template -o x.h5 spectra.h5
    rvs-template -q --norm none -s r:6400:6600:0.4:FWHM=1 -o flat.h5 library.h5
    rvs-fit -q -t flat.h5 --arms r --resolution-matrix --with-template -o whole.h5 spectra.h5
    h5check whole.h5
    rvs-fit -q -t flat.h5 --arms r -w 6430,6580 --resolution-matrix --with-template -o part.h5 \
        spectra.h5
    h5check part.h5
    [ "$(h5ls part.h5/rvfit/r/template)" = "$(h5ls whole.h5/rvfit/r/template)" ]
    h5dump -H -d /rvfit/r/template part.h5 | grep 'SIMPLE { ( 6, 251 )'
    # held at the same point, the same templates whatever was fitted
    for which in whole part; do
        [ $which = part ] && set -- -w 6430,6580 || set --
        rvs-fit -q -t flat.h5 --arms r "$@" --resolution-matrix --with-template --fix v=0 \
            --fix vsini=5 --fix teff=5300 --fix logg=4 --fix feh=-0.5 --fix alpha=0 -o held-$which.h5 spectra.h5
    done
    # but for the width of the templates' pixels, which is that in the middle of what is fitted
    h5diff -p 1e-4 held-whole.h5 held-part.h5 /rvfit/r/template
    # templates that were divided by their medians have the same continuum, and its level
    rvs-template -q --norm median -s r:6400:6600:0.4:FWHM=1 -o median.h5 library.h5
    rvs-fit -q -t median.h5 --arms r --resolution-matrix --with-template --fix v=0 \
        --fix vsini=5 --fix teff=5300 --fix logg=4 --fix feh=-0.5 --fix alpha=0 -o held-median.h5 spectra.h5
    h5diff -p 1e-4 held-whole.h5 held-median.h5 /rvfit/r/template
    # exposures of stars that are fitted together have a row each
    rvs-fit -q -t flat.h5 --arms r --joint target --resolution-matrix --with-template -o joint.h5 spectra.h5
    h5check joint.h5
    h5dump -H -d /rvfit/r/exposure_template joint.h5 | grep 'SIMPLE { ( 6, 251 )'
}

@test "rvs-fit: --with-template where spectra have wavelength grids of their own" {
    data spectra.h5 library.h5 frame-r0.h5
    local k n=251 hold=(--fix v=20 --fix vsini=5 --fix teff=5300 --fix logg=4 --fix feh=-0.5 --fix alpha=0)
    numbers() { h5dump -A 0 -y -w 1 -m %.9g -d "$2" "$1" | grep -E '^ *[-0-9.e+]+,?$' | tr -d ' ,'; }
    rvs-template -q --norm none -s r:6400:6601:0.4:FWHM=1 -o flat.h5 library.h5
    h5edit spectra.h5 detach /spectra/r/flux detach /spectra/r/ivar detach /spectra/r/mask detach /spectra/r/resolution
    cp spectra.h5 rows.h5
    h5edit rows.h5 grids /spectra/r/wavelength 8 0.07
    rvs-fit -q -t flat.h5 --arms r --resolution-matrix --all-fibers "${hold[@]}" --with-template -o rows-rv.h5 rows.h5
    h5check rows-rv.h5
    h5ls rows-rv.h5/rvfit/r/template_wavelength | grep "Dataset {8, $n}"
    cmp <(numbers rows-rv.h5 /rvfit/r/template_wavelength) <(numbers rows.h5 /spectra/r/wavelength)
    # each as from a file whose grid is its own, up to the widths of templates' pixels
    for k in 0 3 7; do
        cp spectra.h5 one.h5
        h5edit one.h5 move /spectra/r/wavelength "$(awk -v k=$k 'BEGIN { print 0.07 * k }')"
        rvs-fit -q -f -t flat.h5 --arms r --resolution-matrix --all-fibers "${hold[@]}" --with-template -o one-rv.h5 one.h5
        paste -d' ' <(numbers rows-rv.h5 "/rvfit/r/template[$k,0;;1,$n]") <(numbers one-rv.h5 "/rvfit/r/template[$k,0;;1,$n]") |
            awk '!($1 > 0) || ($1 - $2)^2 > (1e-5 * $2)^2 { print; bad++ } END { exit bad || NR != 251 }'
    done
    # with exposures of a star on different grids, a row each
    rvs-fit -q -t flat.h5 --arms r --joint all --rows 0:3 --resolution-matrix --all-fibers "${hold[@]}" --with-template -o joint.h5 rows.h5
    h5check joint.h5
    h5dump -H -d /rvfit/r/exposure_template joint.h5 | grep "SIMPLE { ( 3, $n )"
    for k in 0 2; do
        paste -d' ' <(numbers rows-rv.h5 "/rvfit/r/template[$k,0;;1,$n]") \
            <(numbers joint.h5 "/rvfit/r/exposure_template[$k,0;;1,$n]") |
            awk '!($1 > 0) || ($1 - $2)^2 > (1e-5 * $2)^2 { print; bad++ } END { exit bad || NR != 251 }'
    done
    # specx-flux takes them: as from the same spectra on one grid
    cp spectra.h5 same.h5
    h5edit same.h5 grids /spectra/r/wavelength 8 0
    for k in spectra same; do
        rvs-fit -q -t flat.h5 --arms r --resolution-matrix --with-template -o $k-rv.h5 $k.h5
        specx-flux -q --fit $k-rv.h5 -o $k-flux.h5 frame-r0.h5
    done
    h5diff -p 1e-4 spectra-flux.h5 same-flux.h5 /frame/flux
}

@test "rvs-fit --leave-out: what lies in bands does not matter" {
    data frame-r0.h5 templates.h5
    local how row
    printf '6480 6490\n' >bands.txt
    rvs-fit -q -t templates.h5 --leave-out 6480,6490 -o good.h5 frame-r0.h5
    rvs-fit -q -t templates.h5 -o all.h5 frame-r0.h5
    paste -d, <(column NPIX_TOT good.h5) <(column NPIX_TOT all.h5) |
        awk -F, '{ n++; if ($2 - $1 < 10 || $2 - $1 > 14) { print; bad = 1 } } END { exit bad || n < 6 }'
    # light that no star has, of 251 bins a row from 6400 Angstrom on
    for row in 0 1 2 3 4 5 6 7; do
        h5edit frame-r0.h5 set /frame/flux $((251 * row + 105)) 1e4
    done
    rvs-fit -q -t templates.h5 -o spoilt.h5 frame-r0.h5
    run ! h5diff -q all.h5 spoilt.h5 /rvfit/table
    for how in 6480,6490 bands.txt; do
        rvs-fit -q -f -t templates.h5 --leave-out "$how" --leave-out telluric -o rv.h5 frame-r0.h5
        # the median of all fluxes, which sets the error of pixels without information, has moved a little
        paste -d, <(column VRAD,VRAD_ERR,CHISQ_TOT,NPIX_TOT good.h5) <(column VRAD,CHISQ_TOT,NPIX_TOT rv.h5) |
            awk -F, '{ n++; v = ($5 - $1) / $2; c = $6 - $3; if (v * v > 1e-4 || c * c > 1e-4 || $7 != $4) { print; bad = 1 } }
                END { exit bad || n < 6 }'
    done
    # bands that touch nothing, as of another unit, are named
    echo '648 649' >bands.txt
    run -0 rvs-fit -f -t templates.h5 --leave-out bands.txt --leave-out 5000,5100 -o rv.h5 frame-r0.h5
    [[ $output == *'--leave-out bands.txt: no wavelength of the spectra is within'*'--leave-out 5000,5100: no wavelength'* ]]
    echo '648 649 nm' >bands.txt
    run -0 rvs-fit -f -t templates.h5 --leave-out bands.txt -o rv.h5 frame-r0.h5
    [[ $output != *'no wavelength'* ]]
    rvs-fit -q -t templates.h5 --leave-out 6480,6490 -o same.h5 frame-r0.h5
    h5diff same.h5 rv.h5 /rvfit/table /rvfit/table
    fails_with 2 '*--leave-out 6490,6480: give the smaller of two wavelengths first*' \
        rvs-fit -t templates.h5 --leave-out 6490,6480 -o x.h5 frame-r0.h5
    fails_with 3 '*tellurics: cannot open*' rvs-fit -t templates.h5 --leave-out tellurics -o x.h5 frame-r0.h5
    printf '# none yet\n' >bands.txt
    fails_with 3 '*bands.txt: holds no band*' rvs-fit -t templates.h5 --leave-out bands.txt -o x.h5 frame-r0.h5
    printf '6480\n' >bands.txt
    fails_with 3 '*bands.txt:1: is not a band*' rvs-fit -t templates.h5 --leave-out bands.txt -o x.h5 frame-r0.h5
}

@test "rvs-fit --tellurics: strengths, velocities and what it refuses" {
    # stars without and with an atmosphere of strength 1.4, in the band of oxygen at 6884 Angstrom
    specx-sim -q --library stars --step 0.1 --wavelength 6800,7000 --axis teff=4750,5250,5750 --axis logg=3.5 \
        --axis feh=-0.8,-0.4,0 --axis alpha=0
    fits2h5 -q -o library.h5 stars
    rvs-template -q --library-resolution none -o narrow.h5 -s r:6825:6975:0.2:FWHM=0.5 library.h5
    rvs-telluric --simulated 6800,7000 -o lines.h5
    local kind
    for kind in clean air; do
        # shellcheck disable=SC2046
        specx-sim -q -f --arm r --fibers 15 --no-sky --wavelength 6830,6970 --teff 4800:5700 --logg 3.5:3.5 \
            --feh -0.7:-0.1 --vsini 0:5 --snr 100:120 $([ $kind = air ] && echo --tellurics 1.4) \
            --psf-output psf.fits --truth truth.h5 -o image.fits
        fits2h5 -q image.fits psf.fits | specx-extract -q --wavelength 6830,6970,0.8 -o $kind.h5
    done
    fit=(rvs-fit -q -f -t narrow.h5 --resolution-matrix "--vrange=-600,600")
    "${fit[@]}" --tellurics lines.h5 -o clean-rv.h5 clean.h5
    "${fit[@]}" --tellurics lines.h5 -o rv.h5 air.h5
    "${fit[@]}" -o without.h5 air.h5
    h5check rv.h5
    # water has no line here: its strength stays, and has no error
    h5table --csv -t /tellurics/table -c EXPID,NSTAR,STRENGTH_O2,STRENGTH_ERR_O2,STRENGTH_H2O,STRENGTH_ERR_H2O,SHIFT \
        rv.h5 | awk -F, 'NR == 2 { print; exit !($1 == -1 && $2 == 12 && ($3 - 1.4)^2 < 0.03^2 + 9 * $4^2 && $4 > 0 &&
            $5 == 1 && $6 == 0 && $7^2 < 0.5^2) }'
    h5table --csv -t /tellurics/table -c STRENGTH_O2 clean-rv.h5 | awk 'NR == 2 { print; exit !($1 < 0.02) }'
    # velocities are those without an atmosphere, which they are not where it is not fitted
    paste -d, <(column VRAD,VRAD_ERR,CHISQ_TOT,NPIX_TOT rv.h5) <(column VRAD clean-rv.h5) \
        <(column VRAD,CHISQ_TOT without.h5) | awk -F, '{ p = ($1 - $5) / $2; q = ($6 - $5) / $2; s += p * p; t += q * q
            c += $3 / $4; d += $7 / $4 } END { print sqrt(s / NR), sqrt(t / NR), c / NR, d / NR
            exit !(s / NR < 1.3^2 && t > 100 * s && c / NR < 1.5 && d / NR > 10) }'
    # the brightest stars alone; joint fits; one thread or two
    "${fit[@]}" --tellurics lines.h5 --telluric-stars 4 --joint target -j 2 -o joint.h5 air.h5
    h5table --csv -t /tellurics/table -c NSTAR joint.h5 | tail -n 1 | grep -qx 4
    "${fit[@]}" --tellurics lines.h5 --no-model -j 1 -o a.h5 air.h5
    "${fit[@]}" --tellurics lines.h5 --no-model -j 2 -o b.h5 air.h5
    h5diff a.h5 b.h5 /rvfit && h5diff a.h5 b.h5 /tellurics
    run -0 --separate-stderr rvs-fit -f -t narrow.h5 --resolution-matrix --rows 0:3 --device cuda --tellurics lines.h5 \
        "--vrange=-600,600" -o x.h5 air.h5
    [[ $stderr == *'--tellurics is for the CPU'* ]]

    fails_with 2 '*--tellurics goes with --resolution-matrix only*' rvs-fit -t narrow.h5 --tellurics lines.h5 -o y.h5 air.h5
    fails_with 2 '*--telluric-stars goes with --tellurics*' rvs-fit -t narrow.h5 --telluric-stars 3 -o y.h5 air.h5
    fails_with 3 '*no /transmission: rvs-telluric*' rvs-fit -t narrow.h5 --resolution-matrix --tellurics narrow.h5 -o y.h5 \
        air.h5
    rvs-telluric --simulated 7600,7700 -o far.h5
    fails_with 3 '*no lines where the arms are*' rvs-fit -t narrow.h5 --resolution-matrix "--vrange=-600,600" \
        --tellurics far.h5 -o y.h5 air.h5
    h5edit air.h5 attr /frame/wavelength frame barycentric
    fails_with 3 '*BARYCENTRIC_VELOCITY*' "${fit[@]}" --tellurics lines.h5 -o y.h5 air.h5
}

@test "rvs-fit names parameters of two nodes that stay linear" {
    local d=$BATS_FILE_TMPDIR/data
    run -0 --separate-stderr rvs-fit -t "$d/templates.h5" --rows 0:2 -o rv.h5 "$d/frame-r0.h5"
    [[ $stderr == *'rvs-fit: logg, feh, alpha have two nodes: templates are straight lines between them'* ]]
    # the network and simplices have no axes
    run -0 --separate-stderr rvs-fit -q -t "$d/templates.h5" --rows 0:2 -f -o rv.h5 "$d/frame-r0.h5"
    [ -z "$stderr" ]
}
