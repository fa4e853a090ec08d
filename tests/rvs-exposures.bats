# rvs-fit: several exposures of a star, selection by redshift file, spectra in parts, curves of the cross-correlation, bad
# spectra.
load common

# The data of the manual's examples, and another exposure of the same stars, whose frames are on other wavelengths.
setup_file() {
    example_data
    cd "$BATS_FILE_TMPDIR/data" || return
    specx-sim -q --arm r --fibers 8 --sky-fibers 2 --no-sky --wavelength 6400,6600 --teff 5200:5800 --logg 3.7:4.3 \
        --feh -0.8:-0.2 --alpha 0 --vsini 0:10 --snr 30:31 --expid 7 --psf-output psf.fits -o second.fits
    fits2h5 -q second.fits psf.fits | specx-extract -q --wavelength 6400.4,6599.6,0.8 -o second-r0.h5
}

data() {
    for f; do cp "$BATS_FILE_TMPDIR/data/$f" .; done
}

column() {
    h5table --csv -c "$1" "${@:2}" | tail -n +2
}

@test "the same spectra twice: one row a star, errors smaller by sqrt 2, models for each exposure" {
    data spectra.h5 templates.h5
    rvs-fit -q -t templates.h5 -o one.h5 spectra.h5
    rvs-fit -q -t templates.h5 --joint target -o two.h5 spectra.h5 spectra.h5
    h5check two.h5
    [ "$(column TARGETID one.h5)" = "$(column TARGETID two.h5)" ]
    [ "$(column NEXP two.h5 | sort -u)" = 2 ]
    paste <(column VRAD,VRAD_ERR one.h5 | tr , ' ') <(column VRAD,VRAD_ERR two.h5 | tr , ' ') |
        awk '($1 - $3)^2 > (0.05 * $2)^2 || ($4 * sqrt(2) / $2 - 1)^2 > 0.03^2 { exit 1 }'
    paste <(column SN_R one.h5) <(column SN_R two.h5) | awk '($2 / $1 - sqrt(2))^2 > 1e-6 { exit 1 }'
    # star after star
    [ "$(h5table --csv -t /rvfit/exposures -c TARGETID two.h5 | tail -n +2 | uniq -c | awk '{ print $1 }' | sort -u)" = 2 ]
    [ "$(h5table --csv -t /exp_fibermap -c TARGETID two.h5)" = "$(h5table --csv -t /rvfit/exposures -c TARGETID two.h5)" ]
    h5dump -H -d /rvfit/b/exposure_model two.h5 | grep 'SIMPLE { ( 12, 251 )'
    run ! h5ls two.h5/rvfit/b/model
    # within one file, too; and a single exposure is what it is without --joint
    h5merge -q --by rows --allow repeated -o both.h5 spectra.h5 spectra.h5
    rvs-fit -q -t templates.h5 --joint target -o merged.h5 both.h5
    [ "$(column VRAD,VRAD_ERR,CHISQ_TOT merged.h5)" = "$(column VRAD,VRAD_ERR,CHISQ_TOT two.h5)" ]
    rvs-fit -q -t templates.h5 --joint target -o alone.h5 spectra.h5
    [ "$(column VRAD,VRAD_ERR,CHISQ_TOT alone.h5)" = "$(column VRAD,VRAD_ERR,CHISQ_TOT one.h5)" ]
    h5dump -g /provenance two.h5 | grep 'exposures=12'
    # results of several fits, one after another; models of exposures stay behind, and it says so
    run --separate-stderr h5merge -v --by rows --allow repeated -o more.h5 two.h5 two.h5
    [ "$status" -eq 0 ]
    # run sets it
    # shellcheck disable=SC2154
    [[ $stderr == *"/rvfit/b/exposure_model: left out"* ]]
    h5check more.h5
    [ "$(h5table --csv -t /rvfit/exposures more.h5 | wc -l)" -eq 25 ]
    # as FITS: rows of the models and their fibermap go together
    h52fits -o rvtab.fits two.h5
    fits2h5 --list rvtab.fits >list
    grep -q 'RVTAB  *table 6 rows' list
    grep -q 'EXP_FIBERMAP  *table 12 rows' list
    h52fits --as rvmod -o rvmod.fits two.h5
    fits2h5 --list rvmod.fits >list
    grep -q 'B_MODEL  *image 12 x 251' list
    grep -q 'FIBERMAP  *table 12 rows' list
}

@test "exposures on wavelengths of their own; all spectra as one star" {
    data spectra.h5 templates.h5 second-r0.h5 frame-b0.h5 frame-r0.h5 truth-b0.h5
    rvs-fit -q -t templates.h5 --joint target -o two.h5 spectra.h5 second-r0.h5
    h5check two.h5
    # a column for each grid; both are fitted with the setup r
    column SN_R,SN_R2,NEXP two.h5 | awk -F, '!($1 > 20 && $2 > 20 && $2 < $1 && $3 == 2) { exit 1 }'
    h5dump -g /provenance two.h5 | grep 'setup_r2=r'
    h5table --csv -c OBJTYPE,VRAD truth-b0.h5 | grep TGT | cut -d, -f2 >truth
    paste truth <(column VRAD,VRAD_ERR two.h5 | tr , ' ') | awk '($1 - $2)^2 > (4 * $3 + 1)^2 { exit 1 }'
    # better than either alone
    rvs-fit -q -t templates.h5 -o one.h5 spectra.h5
    paste <(column VRAD_ERR one.h5) <(column VRAD_ERR two.h5) | awk '$2 >= $1 { exit 1 }'
    # order does not matter
    rvs-fit -q -t templates.h5 --joint target -o turned.h5 second-r0.h5 spectra.h5
    paste <(column VRAD,VRAD_ERR turned.h5 | tr , ' ') <(column VRAD two.h5) |
        awk '($1 - $3)^2 > (0.02 * $2)^2 { exit 1 }'
    # one star
    rvs-fit -q -t templates.h5 --joint all --rows 0:1 -o row.h5 frame-r0.h5
    h5merge -q --by rows --allow repeated -o rows.h5 frame-r0.h5 frame-r0.h5
    rvs-fit -q -t templates.h5 --joint all --rows 0:2 -o all.h5 rows.h5
    [ "$(column NEXP all.h5)" = 2 ]
    # without --joint each row is a star of its own, with the result that its file alone gives
    rvs-fit -q -t templates.h5 -o each.h5 frame-r0.h5 second-r0.h5
    rvs-fit -q -t templates.h5 -o first.h5 frame-r0.h5
    rvs-fit -q -t templates.h5 -o second.h5 second-r0.h5
    [ "$(column VRAD,VRAD_ERR each.h5)" = "$(column VRAD,VRAD_ERR first.h5 && column VRAD,VRAD_ERR second.h5)" ]
    # in the order of a shell's pattern, b1 b2 r1 r2, arms of one exposure would go with those of another
    fails_with 3 '*second-r0.h5*exposure 7*of 1*' rvs-fit -t templates.h5 -o x.h5 frame-b0.h5 second-r0.h5
    # and without EXPID nothing tells which; all arms of one before the next do
    local f
    for f in b1 b2 r1 r2; do
        cp "frame-${f%?}0.h5" $f.h5
        h5edit $f.h5 strings /frame/header 'COMMENT of no exposure'
    done
    fails_with 3 '*r1.h5*without EXPID*' rvs-fit -t templates.h5 -o x.h5 b1.h5 b2.h5 r1.h5 r2.h5
    fails_with 3 '*r2.h5*without EXPID*' rvs-fit -t templates.h5 -o x.h5 b1.h5 b2.h5 r2.h5
    rvs-fit -q -t templates.h5 -o arms.h5 b1.h5 r1.h5 b2.h5 r2.h5
    rvs-fit -q -t templates.h5 -o arm.h5 frame-b0.h5 frame-r0.h5
    [ "$(column VRAD,VRAD_ERR arms.h5)" = "$(column VRAD,VRAD_ERR arm.h5 && column VRAD,VRAD_ERR arm.h5)" ]
    rvs-fit -q -t templates.h5 -o alone.h5 b2.h5 r2.h5 b1.h5
    [ "$(column TARGETID alone.h5)" = "$(column TARGETID arms.h5)" ]
}

@test "fibermaps with other columns: those that all have are kept, what is left out is said" {
    data spectra.h5 templates.h5 second-r0.h5
    rvs-fit -q -t templates.h5 --joint target -o two.h5 spectra.h5 second-r0.h5
    # the names of members are text in the file, which has no inventory any more once it is edited
    cp second-r0.h5 edited.h5
    h5edit edited.h5 attr / note edited
    LC_ALL=C sed 's/TARGET_DEC/TARGET_LAT/g' edited.h5 >other.h5
    run --separate-stderr rvs-fit -t templates.h5 --joint target -o other-two.h5 spectra.h5 other.h5
    # run sets them
    # shellcheck disable=SC2154
    [ "$status" -eq 0 ]
    # shellcheck disable=SC2154
    [[ $stderr == *"not all inputs have alike are left out: TARGET_LAT, TARGET_DEC"* ]]
    h5check other-two.h5
    h5dump -g /provenance other-two.h5 | grep 'columns_left_out=TARGET_LAT, TARGET_DEC'
    [ "$(column TARGETID,VRAD,VRAD_ERR,TEFF two.h5)" = "$(column TARGETID,VRAD,VRAD_ERR,TEFF other-two.h5)" ]
    fails_with 3 '*TARGET_DEC*' h5table -c TARGET_DEC other-two.h5
    # each is named once, also where a third file has what the second lacks
    run --separate-stderr rvs-fit -t templates.h5 --joint target -f -o three.h5 spectra.h5 other.h5 second-r0.h5
    [[ $stderr == *"are left out: TARGET_LAT, TARGET_DEC"$'\n'* ]]
    # whose exposures they are has to be known
    LC_ALL=C sed 's/TARGETID/TARGETNO/g' edited.h5 >nobody.h5
    fails_with 3 '*nobody.h5: /fibermap: column TARGETID*cannot be told*' \
        rvs-fit -t templates.h5 --joint target -o x.h5 spectra.h5 nobody.h5
}

@test "starts: a joint fit from another one, and by brute force" {
    data spectra.h5 templates.h5
    rvs-fit -q -t templates.h5 --joint target -o two.h5 spectra.h5 spectra.h5
    run --separate-stderr rvs-fit -t templates.h5 --joint target --start two.h5 -o again.h5 spectra.h5 spectra.h5
    [ "$status" -eq 0 ]
    # run sets it
    # shellcheck disable=SC2154
    [[ $stderr != *"start from the cross-correlation"* ]]
    paste <(column VRAD,VRAD_ERR two.h5 | tr , ' ') <(column VRAD again.h5) |
        awk '($1 - $3)^2 > (0.02 * $2)^2 { exit 1 }'
    rvs-fit -q -t templates.h5 --rows 0:2 -o ccf.h5 spectra.h5
    rvs-fit -q -t templates.h5 --rows 0:2 --start grid --vrange -300,300 -o grid.h5 spectra.h5
    paste <(column NEG2LOGL ccf.h5) <(column NEG2LOGL grid.h5) | awk '$2 > $1 + 0.1 { exit 1 }'
    column VRAD_CCF grid.h5 | awk 'tolower($1) != "nan" { exit 1 }'
}

@test "parts: the same values, whatever fits into memory" {
    data spectra.h5 templates.h5
    many=()
    for ((i = 0; i < 40; i++)); do many+=(spectra.h5); done
    h5merge -q --by rows --allow repeated -o many.h5 "${many[@]}"
    rvs-fit --reproducible -q -t templates.h5 --ccf -o whole.h5 many.h5
    rvs-fit --reproducible -v -t templates.h5 --ccf --max-mem 24M -o parts.h5 many.h5 2>log
    for group in /rvfit /ccf /fibermap /scores; do h5diff whole.h5 parts.h5 $group; done
    h5check parts.h5
    [ "$(column VRAD parts.h5 | wc -l)" -eq 240 ]
    # no part holds more than a fraction
    rvs-fit --reproducible -q -t templates.h5 --joint target --max-mem 24M -o joint.h5 many.h5
    [ "$(column NEXP joint.h5 | sort -u)" = 40 ]
    fails_with 4 '*--max-mem*' rvs-fit -t templates.h5 --max-mem 3M -o x.h5 many.h5
}

@test "targets from a file, by signal-to-noise ratio, by type" {
    data spectra.h5 templates.h5
    rvs-fit -q -t templates.h5 -o all.h5 spectra.h5
    column TARGETID all.h5 | sed -n '2p;5p' >ids
    rvs-fit -q -t templates.h5 --targetid-file ids -o some.h5 spectra.h5
    cmp ids <(column TARGETID some.h5)
    [ "$(column VRAD all.h5 | sed -n '2p;5p')" = "$(column VRAD some.h5)" ]
    rvs-fit -q -t templates.h5 --targetid-file ids --targetid "$(column TARGETID all.h5 | sed -n 1p)" -o three.h5 spectra.h5
    [ "$(column TARGETID three.h5 | wc -l)" -eq 3 ]
    # the median of the best arm
    cut=$(column SN_B,SN_R,SN_Z all.h5 | awk -F, '{ m = $1; for (i = 2; i < 4; i++) if ($i > m) m = $i; print m }' |
        sort -g | sed -n 4p)
    rvs-fit -q -t templates.h5 --minsn "$cut" -o bright.h5 spectra.h5
    [ "$(column TARGETID bright.h5 | wc -l)" -ge 1 ]
    [ "$(column TARGETID bright.h5 | wc -l)" -le 3 ]
    echo >none
    fails_with 3 '*holds no TARGETID*' rvs-fit -t templates.h5 --targetid-file none -o x.h5 spectra.h5
    fails_with 3 '*nowhere*' rvs-fit -t templates.h5 --targetid-file nowhere -o x.h5 spectra.h5
    fails_with 3 '*DESI_TARGET*' rvs-fit -t templates.h5 --objtypes MWS_ANY -o x.h5 spectra.h5
    fails_with 2 '*no bit*' rvs-fit -t templates.h5 --objtypes STARS -o x.h5 spectra.h5
    fails_with 3 '*EXPID*' rvs-fit -t templates.h5 --minexpid 3 -o x.h5 spectra.h5
    fails_with 2 '*--zbest*' rvs-fit -t templates.h5 --zbest-select -o x.h5 spectra.h5
    fails_with 3 '*REDSHIFTS*' rvs-fit -t templates.h5 --zbest spectra.h5 -o x.h5 spectra.h5
}


@test "redshift files of DESI" {
    need_shared data/formats/coadd-special-dark-27247.fits data/formats/redrock-special-dark-27247.fits
    data library.h5
    d=$SPX_SHARED/data/formats
    rvs-template -q -s r:5740:7650:0.8:FWHM=1.8 -o r.h5 library.h5
    fits2h5 -q "$d/coadd-special-dark-27247.fits" -o coadd.h5
    fits2h5 -q "$d/redrock-special-dark-27247.fits" -o rr.h5
    rvs-fit -q -t r.h5 --zbest rr.h5 -o rv.h5 coadd.h5
    h5check rv.h5
    [ "$(column RR_SPECTYPE,TARGETID rv.h5)" = \
        "$(h5table --csv -t /fits/redrock-special-dark-27247/HDU001_REDSHIFTS/data -c SPECTYPE,TARGETID rr.h5 | tail -n +2)" ]
    # it is a galaxy
    fails_with 1 '*none of the 1 spectra*' rvs-fit -q -t r.h5 --zbest rr.h5 --zbest-select -o x.h5 coadd.h5
    fits2h5 -q "$d/coadd-special-dark-27247.fits" "$d/redrock-special-dark-27247.fits" -o both.h5
    fails_with 1 '*none of the 1 spectra*' rvs-fit -q -t r.h5 --zbest-select -o x.h5 both.h5
    # all exposures of the coadd's target are kept
    [ "$(h5table --csv -t /exp_fibermap -c TARGETID rv.h5 | wc -l)" -eq 21 ]
}

# spoil FILE ROW DATASET VALUE [FIRST [LAST]]: pixels FIRST ... LAST of a row, in all arms.
spoil() {
    local arm k
    for arm in b r z; do
        for ((k = ${5:-0}; k <= ${6:-250}; k++)); do
            echo "set /spectra/$arm/$3 $(($2 * 251 + k)) $4"
        done | xargs h5edit "$1"
    done
}

@test "bad spectra of all kinds keep their rows, are counted, and change no other star by a bit" {
    data spectra.h5 templates.h5
    h5merge -q --by rows --allow repeated -o good.h5 spectra.h5 spectra.h5
    cp good.h5 bad.h5
    # rows of stars that are fitted: which of the 16 they are
    rvs-fit -q -t templates.h5 --ccf -o before.h5 good.h5
    [ "$(column FIBER before.h5 | tr '\n' ' ')" = "0 1 2 4 5 6 0 1 2 4 5 6 " ]
    spoil bad.h5 0 mask 1           # all masked
    spoil bad.h5 1 flux 0           # all zero
    spoil bad.h5 2 flux nan         # no numbers
    spoil bad.h5 4 mask 1 1 250     # a good pixel in each arm
    spoil bad.h5 5 flux 1e30        # beyond any measurement
    spoil bad.h5 6 flux 3           # constant: a velocity, but none that means anything
    spoil bad.h5 8 ivar inf         # errors of 0
    spoil bad.h5 9 flux -1          # negative
    for ((k = 0; k <= 250; k++)); do echo "set /spectra/b/ivar $((10 * 251 + k)) 0"; done | xargs h5edit bad.h5
    run --separate-stderr rvs-fit -t templates.h5 --ccf -o after.h5 bad.h5
    [ "$status" -eq 0 ]
    # run sets it
    # shellcheck disable=SC2154
    [[ $stderr == *"6 of 12 spectra could not be fitted (RVS_WARN 32)"* ]]
    h5check after.h5
    h5dump -g /provenance after.h5 | grep 'stars_bad=6'
    column RVS_WARN after.h5 | awk 'NR <= 5 || NR == 7 { bad += $1 != 32 } NR == 6 || NR == 8 { bad += $1 % 2 != 1 }
        END { exit bad }'
    column VRAD after.h5 | awk 'NR <= 5 || NR == 7 { bad += tolower($1) !~ "nan" } END { exit bad }'
    # without its blue arm the ninth star has a larger error
    paste <(column VRAD_ERR,SN_B before.h5 | tr , ' ') <(column VRAD_ERR,SN_B after.h5 | tr , ' ') |
        awk 'NR == 9 && !($3 > $1 && $4 == 0) { exit 1 }'
    # all others, with their models and curves
    cmp <(h5table --csv before.h5 | sed -n '11,$p') <(h5table --csv after.h5 | sed -n '11,$p')
    for path in /rvfit/b/model /rvfit/r/model /rvfit/z/model; do
        cmp <(h5dump -y -m %.9g -d $path -s 9,0 -c 3,251 before.h5 | tail -n +3) \
            <(h5dump -y -m %.9g -d $path -s 9,0 -c 3,251 after.h5 | tail -n +3)
    done
    # from given starts, and some rows alone, it is the same; a start that is none is no start
    for which in good bad; do
        rvs-fit -q -t templates.h5 --no-model --start before.h5 -o start-$which.h5 $which.h5
        rvs-fit -q -t templates.h5 --no-model --rows 9:16 -o rows-$which.h5 $which.h5
    done
    cmp <(h5table --csv start-good.h5 | sed -n '11,$p') <(h5table --csv start-bad.h5 | sed -n '11,$p')
    cmp <(h5table --csv rows-good.h5 | tail -n 3) <(h5table --csv rows-bad.h5 | tail -n 3)
    cmp <(h5table --csv rows-bad.h5 | tail -n 3) <(h5table --csv after.h5 | tail -n 3)
    [ "$(column RVS_WARN start-bad.h5 | head -n 5 | tr '\n' ' ')" = "32 32 32 32 32 " ]
    rvs-fit -q -t templates.h5 --no-model --start after.h5 -o again.h5 bad.h5
    [ "$(column RVS_WARN again.h5 | head -n 5 | tr '\n' ' ')" = "32 32 32 32 32 " ]
    paste <(column VRAD,VRAD_ERR after.h5 | tr , ' ') <(column VRAD again.h5) |
        awk 'NR > 9 && ($1 - $3)^2 > (0.02 * $2)^2 { exit 1 }'
    # jointly with the good ones, nothing but the good ones counts
    h5merge -q --by rows --allow repeated -o mixed.h5 spectra.h5 bad.h5
    rvs-fit -q -t templates.h5 --joint target --rows 0:1 -o alone.h5 mixed.h5
    rvs-fit -q -t templates.h5 --joint target --targetid "$(column TARGETID alone.h5)" --rows 0:9 -o joint.h5 mixed.h5
    [ "$(column NEXP joint.h5)" = 2 ]
    [ "$(column VRAD,VRAD_ERR,CHISQ_TOT,NPIX_TOT alone.h5)" = "$(column VRAD,VRAD_ERR,CHISQ_TOT,NPIX_TOT joint.h5)" ]
    [ "$(h5table --csv -t /rvfit/exposures -c NPIX joint.h5 | tail -n 1)" = 0 ]
}

# values PATH FILE: numbers of a dataset, one a line.
values() {
    h5dump -y -w 1 -m %.9g -d "$1" "$2" | sed '1,/ DATA {/d; /^ *}/,$d' | tr -d ' ,'
}

@test "curves of the cross-correlation, and their stacks over arms and exposures" {
    data spectra.h5 templates.h5 second-r0.h5
    rvs-fit -q -t templates.h5 -o plain.h5 spectra.h5
    rvs-fit -q -t templates.h5 --ccf -o rv.h5 spectra.h5
    h5check rv.h5
    # keeping them changes nothing
    [ "$(h5table --csv plain.h5)" = "$(h5table --csv rv.h5)" ]
    h5dump -H -d /ccf/gain rv.h5 | grep 'SIMPLE { ( 6, 3, '
    # the stack of a star is the sum of its arms, with its peak where the search started
    h5stack -q -o stack.h5 rv.h5
    h5check stack.h5
    h5reduce -q -p sum -a 1 -o sum.h5 rv.h5:/ccf/gain
    paste <(values /stack/stack stack.h5) <(values /reduce/value sum.h5) |
        awk '($1 - $2)^2 > (1e-5 * $1)^2 + 1e-4 { exit bad = 1 } END { exit bad || NR < 600 }'
    cmp <(values /stack/coordinate stack.h5) <(values /ccf/velocity rv.h5)
    h5stack -q -m max -o peaks.h5 rv.h5
    h5check peaks.h5
    step=$(values /ccf/velocity rv.h5 | awk 'NR == 2 { print $1 - v } { v = $1 }')
    paste <(values /stack/maximum_coordinate peaks.h5) <(column VRAD_CCF rv.h5) |
        awk -v s="$step" '($1 - $2)^2 > s^2 { exit bad = 1 } END { exit bad || NR != 6 }'
    # after a joint fit: over exposures, too; the arm of the other wavelengths is one more
    rvs-fit -q -t templates.h5 --ccf --joint target -o joint.h5 spectra.h5 second-r0.h5
    h5check joint.h5
    h5dump -H -d /ccf/gain joint.h5 | grep 'SIMPLE { ( 12, 4, '
    h5stack -q -m max -o joined.h5 joint.h5
    paste <(values /stack/maximum_coordinate joined.h5) <(column VRAD_CCF joint.h5) |
        awk -v s="$step" '($1 - $2)^2 > s^2 { exit bad = 1 } END { exit bad || NR != 6 }'
    # more data, a higher peak
    paste <(values /stack/maximum peaks.h5) <(values /stack/maximum joined.h5) | awk '$2 <= $1 { exit 1 }'
    fails_with 2 '*give shifts*' h5stack -m argmax -o x.h5 rv.h5
    fails_with 2 '*of no array*' h5stack --slowness 0:1:1 -o x.h5 rv.h5
    fails_with 2 '*--add*' h5stack --add stack.h5 -o x.h5 rv.h5
    fails_with 2 '*--t0*' h5stack --t0 3 -o x.h5 rv.h5
    h5edit rv.h5 set /ccf/velocity 5 1e4
    fails_with 3 '*steps are not equal*' h5stack -o x.h5 rv.h5
    rvs-template -q --no-ccf -s r:6400:6600:0.5:FWHM=1.8 -o none.h5 "$BATS_FILE_TMPDIR/data/library.h5"
    fails_with 3 '*no cross-correlation set*' rvs-fit -t none.h5 --ccf -o x.h5 second-r0.h5
}

@test "exposures of BOSS, each on pixels of its own, are as good as their sum" {
    need_shared data/rv/kurucz_stds_v5.fit data/rv/spec-3128-54776-0008.fits
    fits2h5 -q "$SPX_SHARED/data/rv/kurucz_stds_v5.fit" >library.h5
    fits_make boss boss.fits "$SPX_SHARED/data/rv/spec-3128-54776-0008.fits"
    fits2h5 -q boss.fits -o sum.h5
    fits2h5 -q --exposures boss.fits -o exposures.h5
    rvs-template -q --library-resolution R=1900 --setup sdss:3790:9280:1:R=1800 --setup b:3790:6300:1:R=1800 \
        --setup r:5500:9280:1:R=1800 -o templates.h5 library.h5
    rvs-fit -q -t templates.h5 -o one.h5 sum.h5
    rvs-fit -q -t templates.h5 -o each.h5 exposures.h5
    paste <(column VRAD,VRAD_ERR,TEFF one.h5 | tr , ' ') <(column VRAD,VRAD_ERR,TEFF each.h5 | tr , ' ') |
        awk '{ print; exit ($1 - $4)^2 > $2^2 || ($2 / $5 - 1)^2 > 0.1^2 || ($3 - $6)^2 > 60^2 }'
    column SN_B,SN_B2,SN_R,SN_R2 each.h5 | awk -F, '!($1 > 20 && $2 > 20 && $3 > 20 && $4 > 20) { exit 1 }'
}

@test "spectra of no target, targets of two places, an exposure that is there twice" {
    data spectra.h5 second-r0.h5 templates.h5
    # right input: not a word
    run -0 --separate-stderr rvs-fit -t templates.h5 --joint target -o right.h5 spectra.h5 second-r0.h5
    [[ $stderr != *warning:* ]]
    # with the fibermap t changed
    edit() { edit_h5 "$1" "t = f['fibermap'][...]; $2; f['fibermap'][...] = t" second-r0.h5; }
    edit none.h5 "t['TARGETID'] = -1"
    run -0 --separate-stderr rvs-fit -t templates.h5 --joint target -o none-rv.h5 none.h5
    [[ $stderr == *'warning: --joint target: 6 of 6 spectra have no target (TARGETID -1): each is fitted alone'* ]]
    rvs-fit -q -t templates.h5 -o alone.h5 second-r0.h5
    [ "$(column VRAD,VRAD_ERR,CHISQ_TOT none-rv.h5)" = "$(column VRAD,VRAD_ERR,CHISQ_TOT alone.h5)" ]
    [ "$(column NEXP none-rv.h5 | sort -u)" = 1 ]

    edit apart.h5 "t['TARGETID'] = t['TARGETID'][[1, 0, 2, 3, 4, 5, 6, 7]]"
    run -0 --separate-stderr rvs-fit -t templates.h5 --joint target -o x.h5 spectra.h5 apart.h5
    [[ $stderr == *'warning: --joint target: 2 of 6 targets have exposures more than an arcminute apart on the sky'*'different stars are fitted as one'* ]]

    run -0 --separate-stderr rvs-fit -t templates.h5 --joint target -f -o x.h5 second-r0.h5 second-r0.h5
    [[ $stderr == *'warning: --joint target: exposure 7 of TARGETID '*' is there twice'*'give each exposure once'* ]]
}
