# fits2h5: recognised files, the blocks made of them, libraries, and refusals.

load common

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    specx-sim -q --arm r --fibers 4 --sky-fibers 1 --wavelength 6500,6540 --format fits --psf-output psf.fits -o image.fits
    fits_make types types.fits
}

# text FILE PATH: a dataset of fixed strings, one a line.
values() {
    h5dump -A 0 -y -w 1 -d "$2" "$1" | awk '/DATA \{/ { data = 1; next } data && /\}/ { exit } data { gsub(/[ ,"]/, ""); if ($0 != "") print }'
}

# linked FILE PATH TARGET: PATH is a second name of TARGET (h5dump shows either as the link).
linked() {
    h5dump -n 1 "$1" | grep -E "$2 -> $3\$|$3 -> $2\$"
}

@test "image and PSF go into one file; nothing is kept twice" {
    fits2h5 -o both.h5 "$BATS_FILE_TMPDIR/image.fits" "$BATS_FILE_TMPDIR/psf.fits"
    h5check both.h5
    linked both.h5 /fits/image/HDU000_IMAGE/data /image/data
    linked both.h5 /fits/image/HDU001_IVAR/data /image/ivar
    linked both.h5 /fits/image/HDU002_MASK/data /image/mask
    linked both.h5 /fits/psf/HDU000_XTRACE/data /psf/xtrace
    h5dump -a /image/camera both.h5 | grep '"r0"'
    h5dump -a /product both.h5 | grep '"image"'
    h5dump -d /image/mask -H both.h5 | grep 'H5T_STD_U32LE'
}

@test "standard input, gzip and a file give the same" {
    gzip -c "$BATS_FILE_TMPDIR/image.fits" >image.fits.gz
    fits2h5 --reproducible <"$BATS_FILE_TMPDIR/image.fits" >file.h5
    gzip -c "$BATS_FILE_TMPDIR/image.fits" | fits2h5 --reproducible - >pipe.h5
    fits2h5 --reproducible image.fits.gz >gz.h5
    h5diff file.h5 pipe.h5 /image
    h5diff file.h5 gz.h5 /image
    fits2h5 --reproducible image.fits.gz >again.h5
    cmp gz.h5 again.h5
    cat image.fits.gz image.fits.gz >two.gz # two members: data behind the last HDU, which is kept
    fits2h5 -q --generic two.gz | h52fits -o back.fits
    cat "$BATS_FILE_TMPDIR"/image.fits "$BATS_FILE_TMPDIR"/image.fits | cmp - back.fits
}

@test "what kind of file it is shows in the list, and nothing is written" {
    fits2h5 --list "$BATS_FILE_TMPDIR"/{image,psf,types}.fits >list
    grep -q 'image.fits: image$' list
    grep -q 'psf.fits: psf$' list
    grep -q 'types.fits: generic$' list
    grep -q 'IVAR .* -> /image/ivar$' list
    [ "$(ls)" = list ]
    run fits2h5 --list -o out.h5 "$BATS_FILE_TMPDIR/image.fits"
    [ "$status" -eq 0 ] && [ ! -e out.h5 ]
}

@test "--generic makes no blocks, --as insists on one" {
    fits2h5 --generic -o generic.h5 "$BATS_FILE_TMPDIR/image.fits"
    run ! h5dump -d /image/data -H generic.h5
    fits2h5 --as image -o image.h5 "$BATS_FILE_TMPDIR/image.fits"
    h5dump -d /image/data -H image.h5 | grep F32
    fails_with 3 '*psf.fits: cannot be read as image*' fits2h5 --as image -o out.h5 "$BATS_FILE_TMPDIR/psf.fits"
}

@test "every type of image and column has its values in HDF5" {
    fits2h5 -q -o t.h5 "$BATS_FILE_TMPDIR/types.fits"
    h5check t.h5
    h5dump -d /fits/types/HDU002_S8/data -H t.h5 | grep 'H5T_STD_I8'
    h5dump -d /fits/types/HDU004_U16/data -H t.h5 | grep 'H5T_STD_U16BE'
    [ "$(values t.h5 /fits/types/HDU004_U16/data | sed -n 2,4p | tr '\n' ' ')" = "37 74 11 " ]
    h5dump -a /fits/types/HDU012/data/scale_factor t.h5 | grep '0.5'
    h5dump -d /fits/types/HDU013_ALL/data -H t.h5 >type.txt
    grep -q 'H5T_STD_U64BE "UK"' type.txt
    grep -q '\[3\]\[2\] H5T_IEEE_F64BE } "D"\|H5T_ARRAY { \[3\]\[2\] H5T_IEEE_F64BE } "D"' type.txt
    grep -q '"TRUE"' type.txt
    grep -q '"l_2"' type.txt # L and l would be one name
    [ "$(values t.h5 /fits/types/HDU013_ALL/vla/PJ/offsets | tr '\n' ' ')" = "0 1 3 3 7 12 " ]
    [ "$(values t.h5 /fits/types/HDU013_ALL/vla/PJ/values | head -3 | tr '\n' ' ')" = "1 2 -2 " ]
}

@test "headers are kept verbatim" {
    fits2h5 -q -o t.h5 "$BATS_FILE_TMPDIR/types.fits"
    h5dump -d /fits/types/HDU012/header t.h5 | grep "CONTINUE  '.*in a"
}

@test "DESI spectra, all of them" {
    need_shared data/formats/coadd-special-dark-27247.fits data/rv/mock-coadd.fits.gz
    fits2h5 -o coadd.h5 "$SPX_SHARED/data/formats/coadd-special-dark-27247.fits"
    h5check coadd.h5
    for arm in b r z; do
        for part in wavelength flux ivar mask resolution; do
            h5dump -d /spectra/$arm/$part -H coadd.h5 | grep SIMPLE
        done
    done
    h5dump -d /exp_fibermap -H coadd.h5 | grep 'SIMPLE { ( 20 )'
    h5table -t /fibermap -c TARGETID coadd.h5 | grep '[0-9]'
    h5dump -a /spectra/r/wavelength/frame coadd.h5 | grep barycentric
    h5dump -a /spectra/r/flux/units coadd.h5 | grep 'erg'
    [ "$(stat -c %s coadd.h5)" -lt 700000 ]
    fits2h5 -o mock.h5 "$SPX_SHARED/data/rv/mock-coadd.fits.gz"
    h5check mock.h5
    h5dump -d /spectra/z/flux -H mock.h5 | grep '( 106, 2881 )'
}

@test "DESI image and PSF, all of them" {
    need_shared data/extract/preproc-r0-sim.fits.gz data/extract/psf-r0-00067784.fits
    fits2h5 -o both.h5 "$SPX_SHARED"/data/extract/{preproc-r0-sim.fits.gz,psf-r0-00067784.fits}
    h5check both.h5
    h5dump -d /psf/coeff -H both.h5 | grep '( 59, 500, 2 )'
    h5dump -a /psf/camera both.h5 | grep '"r0"'
    [ "$(stat -c %s both.h5)" -lt 206000000 ]
}

@test "SDSS spectra" {
    need_shared data/rv/spec-3128-54776-0008.fits
    fits2h5 -o s.h5 "$SPX_SHARED/data/rv/spec-3128-54776-0008.fits"
    h5check s.h5
    h5table --csv -t /fibermap -c TARGETID,TARGET_RA s.h5 | grep '^3128547760008,341.016'
    # log10 of the wavelength is a multiple of 1e-4 exactly, which float32 loglam is not
    h5dump -A 0 -y -w 1 -m %.12g -d /spectra/sdss/wavelength s.h5 | sed '1,/ DATA {/d;s/[ ,]//g' | awk 'NR == 1 { first = log($1) } NR == 3000 { print (log($1) - first) / log(10) }' | grep -x '0.2999'
    h5dump -a /spectra/sdss/wavelength/medium s.h5 | grep vacuum
}

@test "single exposures of SDSS spectra" {
    need_shared data/rv/spec-3128-54776-0008.fits
    local spec=$SPX_SHARED/data/rv/spec-3128-54776-0008.fits
    fits_make boss boss.fits "$spec"
    fits2h5 --list --exposures boss.fits >list
    grep -q 'B1-00000002 .* /spectra/b2' list
    fits2h5 --exposures -o e.h5 boss.fits
    h5check e.h5
    [ "$(h5ls e.h5/spectra | awk '{ print $1 }' | tr '\n' ' ')" = "b b2 header r r2 " ]
    # whole: the sum alone
    fits2h5 -o s.h5 boss.fits
    [ "$(h5ls s.h5/spectra | awk '{ print $1 }' | tr '\n' ' ')" = "header sdss " ]
    h52fits e.h5 | cmp - boss.fits
    # cameras whose names begin with no letter
    LC_ALL=C sed 's/B1-0/12-0/g; s/R1-0/34-0/g' boss.fits >odd.fits
    fits2h5 --exposures -o odd.h5 odd.fits
    [ "$(h5ls odd.h5/spectra | awk '{ print $1 }' | tr '\n' ' ')" = "header x x2 x3 x4 " ]
    fails_with 3 '*no single exposures*' fits2h5 --exposures -o x.h5 "$spec"
}

@test "a PSF of another type stays generic, with a warning, and is refused where a PSF is asked for" {
    need_shared data/formats/psf-gausshermite2_boss_r2.fits
    local psf=odd.fits
    LC_ALL=C sed 's/GAUSS-HERMITE2/PIXELATED-SPOT/' "$SPX_SHARED/data/formats/psf-gausshermite2_boss_r2.fits" >"$psf"
    run --separate-stderr fits2h5 -o p.h5 "$psf"
    [ "$status" -eq 0 ]
    [[ $stderr == *PIXELATED-SPOT*GAUSS-HERMITE,* ]]
    rm p.h5
    fails_with 3 '*PIXELATED-SPOT*' fits2h5 --as psf -o p.h5 "$psf"
    fits2h5 -q -o both.h5 "$BATS_FILE_TMPDIR/image.fits" "$psf"
    rm -f out.h5
    fails_with 3 '*psf*' specx-extract -o out.h5 both.h5
}

@test "a BOSS PSF of two cores, and the way back" {
    need_shared data/formats/psf-gausshermite2_boss_r2.fits
    local psf=$SPX_SHARED/data/formats/psf-gausshermite2_boss_r2.fits d
    fits2h5 -o p.h5 "$psf"
    h5check p.h5
    [[ $(h5dump -a /psf/psftype p.h5) == *'"gauss-hermite2"'* && $(h5dump -a /psf/version p.h5) == *'"2.0"'* ]]
    [[ $(h5dump -a /psf/ghdegx2 p.h5) == *'(0): 3'* && $(h5dump -a /psf/camera p.h5) == *'"r2"'* ]]
    # X of fibre 0, as the file has it
    [[ $(h5dump -y -m %.9g -d /psf/xtrace -s 0,0 -c 1,3 p.h5) == *250.110913*6.59699197*-10.4649874* ]]
    h52fits p.h5 | cmp - "$psf"
    h52fits --as psf p.h5 -o q.fits
    fits2h5 -o q.h5 q.fits
    h5check q.h5
    for d in xtrace ytrace coeff param; do h5diff -v p.h5 q.h5 "/psf/$d" | grep -q '^0 differences'; done
    # what is missing is named
    LC_ALL=C sed 's/GHNSIG/GHNSIC/' "$psf" >lacks.fits
    fails_with 3 '*lacks.fits*GHNSIG*' fits2h5 -o x.h5 lacks.fits
    LC_ALL=C sed 's/GHDEGX2 /GHDEGX3 /' "$psf" >lacks.fits
    fails_with 3 '*lacks.fits*GHDEGX2*' fits2h5 -o x.h5 lacks.fits
}

@test "libraries in one file" {
    need_shared data/rv/kurucz_stds_v5.fit data/rv/da_white_dwarfs_1d_nlte.fits.gz
    fits2h5 --vacuum -o k.h5 "$SPX_SHARED/data/rv/kurucz_stds_v5.fit"
    h5check k.h5
    [ "$(values k.h5 /library/parname | tr '\n' ' ')" = "teff logg feh " ]
    h5dump -d /library/wavelength -c 1 k.h5 | grep '(0): 3000$'
    h5dump -d /library/flux -H k.h5 | grep '( 89, 5650 )'
    linked k.h5 /fits/kurucz_stds_v5/HDU000/data /library/flux
    fits2h5 --air -o w.h5 "$SPX_SHARED/data/rv/da_white_dwarfs_1d_nlte.fits.gz"
    h5check w.h5
    [ "$(values w.h5 /library/parname | tr '\n' ' ')" = "teff logg " ]
    h5dump -a /library/wavelength/medium w.h5 | grep '"air"'
    # the same with everything said
    fits2h5 --air --library-flux 0 --library-params PARAMS --library-wavelength WAVELENGTH --param-keywords teff=TEFF,logg=LOGG \
        -o said.h5 "$SPX_SHARED/data/rv/da_white_dwarfs_1d_nlte.fits.gz"
    h5diff w.h5 said.h5 /library
    fits2h5 --library-wavelength log10:3.47712135315:1e-4 --vacuum -o formula.h5 "$SPX_SHARED/data/rv/kurucz_stds_v5.fit"
    h5diff k.h5 formula.h5 /library
}

@test "libraries in a folder, and in a list" {
    need_shared data/rv/phoenix_subset
    fits2h5 --air -o f.h5 "$SPX_SHARED/data/rv/phoenix_subset"
    h5check f.h5
    h5dump -d /library/flux -H f.h5 | grep '( 12, 32768 )'
    [ "$(values f.h5 /library/params | head -4 | tr '\n' ' ')" = "5000 3.5 0 0 " ]
    (cd "$SPX_SHARED/data/rv/phoenix_subset" && printf '# models\n\n' && ls -d "$PWD"/*) >list
    fits2h5 --air -o l.h5 @list
    h5diff f.h5 l.h5 /library
    fits2h5 --air --max-mem 4M -o small.h5 @list
    h5diff f.h5 small.h5 /library
    fits2h5 --air --param-keywords t=PHXTEFF -o one.h5 @list
    [ "$(values one.h5 /library/parname)" = t ]
    grep -v WAVE list >models
    fails_with 3 '*wavelengths*' fits2h5 -o out.h5 @models
    run --separate-stderr fits2h5 -o alone.h5 "$(tail -n 1 models)"
    [ "$status" -eq 0 ] && [[ $stderr == *library* ]]
}

@test "a library that does not say what it is says which option is missing" {
    need_shared data/rv/da_white_dwarfs_1d_nlte.fits.gz
    local wd=$SPX_SHARED/data/rv/da_white_dwarfs_1d_nlte.fits.gz
    fails_with 3 '*--library-flux*' fits2h5 --library-flux PARAMS -o out.h5 "$wd"
    fails_with 3 '*--library-params*' fits2h5 --library-params WAVELENGTH -o out.h5 "$wd"
    fails_with 3 '*--library-wavelength*' fits2h5 --library-wavelength FLUX -o out.h5 "$wd"
    fails_with 2 '*--library-wavelength*' fits2h5 --library-wavelength log10:3 -o out.h5 "$wd"
    fails_with 2 '*--param-keywords*' fits2h5 --param-keywords teff -o out.h5 "$wd"
    fails_with 2 '*contradict*' fits2h5 --air --vacuum -o out.h5 "$wd"
}

@test "two of a kind are refused" {
    cp "$BATS_FILE_TMPDIR/image.fits" other.fits
    fails_with 2 '*image.fits and other.fits both hold*one by one*' fits2h5 -o out.h5 "$BATS_FILE_TMPDIR/image.fits" other.fits
    fails_with 2 '*psf.fits*both hold a PSF*' fits2h5 -o out.h5 "$BATS_FILE_TMPDIR"/psf.fits "$BATS_FILE_TMPDIR"/psf.fits
}

@test "truncated files are refused, at every place" {
    local size n
    size=$(stat -c %s "$BATS_FILE_TMPDIR/types.fits")
    for n in 1 100 2000 2880 2960 5000 5760 10000 $((size / 2)) $((size - 2881)); do
        head -c "$n" "$BATS_FILE_TMPDIR/types.fits" >cut.fits
        # the first HDU has no data: 2880 bytes are a whole file
        [ "$n" -eq 2880 ] || fails_with 3 '*cut.fits: *' fits2h5 -o out.h5 cut.fits
    done
    gzip -c "$BATS_FILE_TMPDIR/image.fits" >whole.gz
    head -c 3000 whole.gz >cut.gz
    fails_with 3 '*cut.gz: *truncated*' fits2h5 -o out.h5 cut.gz
    { head -c 3000 whole.gz && head -c 3000 /dev/zero | tr '\0' 'x'; } >bad.gz
    fails_with 3 '*bad.gz: the gzip data*' fits2h5 -o out.h5 bad.gz
}

@test "what is no FITS file is refused with its remedy" {
    printf 'BZh91AY' >a.bz2
    fails_with 3 '*a.bz2: is packed with bzip2*bunzip2*' fits2h5 -o out.h5 a.bz2
    printf '\xfd7zXZ\0' >a.xz
    fails_with 3 '*xz -dc*' fits2h5 -o out.h5 a.xz
    printf '\x1f\x9d\x90' >a.Z
    fails_with 3 '*a.Z: is packed with compress*' fits2h5 -o out.h5 a.Z
    fits2h5 -q -o h.h5 "$BATS_FILE_TMPDIR/psf.fits"
    fails_with 3 '*h.h5: is an HDF5 file*' fits2h5 -o out.h5 h.h5
    : >empty
    fails_with 3 '*empty: is empty*' fits2h5 -o out.h5 empty
    fails_with 3 '*standard input: is empty*' fits2h5 -o out.h5 - </dev/null
    echo hello >text
    fails_with 3 '*text: is no FITS file*' fits2h5 -o out.h5 text
    fails_with 3 '*none.fits*' fits2h5 -o out.h5 none.fits
    mkdir folder
    fails_with 3 '*folder: names no files*' fits2h5 -o out.h5 folder
}

# edited CARD CARD: all compressed images of tiles.fits with one card in place of another of the same length.
edited() {
    [ ${#1} -eq ${#2} ]
    grep -qa "^SIMPLE.*$1" tiles.fits
    LC_ALL=C sed "s/$1/$2/" tiles.fits >edited.fits
    [ "$(stat -c %s edited.fits)" -eq "$(stat -c %s tiles.fits)" ]
}

@test "compressed images whose keywords contradict their streams are refused" {
    fits_make tiles tiles.fits
    fits2h5 -q tiles.fits -o right.h5
    edited 'ZTILE1  =                   40' 'ZTILE1  =                    0'
    fails_with 3 '*ZTILE1 = 0 is impossible*' fits2h5 edited.fits -o out.h5
    edited 'ZTILE1  =                   40' 'ZTILE1  =                   39'
    fails_with 3 '*make 60 tiles, but the table has 30 rows*' fits2h5 edited.fits -o out.h5
    edited 'ZVAL1   =                   32' 'ZVAL1   =                    0'
    fails_with 3 '*RICE INTEGER*ZVAL1 = 0 is impossible*' fits2h5 edited.fits -o out.h5
    edited "ZCMPTYPE= 'RICE_1  '" "ZCMPTYPE= 'GZIP_1  '"
    fails_with 3 '*RICE INTEGER*tile 1: the gzip data*' fits2h5 edited.fits -o out.h5
    edited "'RICE_1  '" "'PLIO_1  '"
    fails_with 3 '*RICE INTEGER*arrays of type I*' fits2h5 edited.fits -o out.h5
    edited "'RICE_1  '" "'NOISE_1 '"
    fails_with 3 "*ZCMPTYPE = 'NOISE_1' is no compression that is known*funpack*" fits2h5 edited.fits -o out.h5
}

# put OFFSET TEXT FILE: overwrites bytes.
# shellcheck disable=SC2059
put() { printf "$2" | dd of="$3" bs=1 seek="$1" conv=notrunc status=none; }

@test "a file that disagrees with its CHECKSUM or DATASUM is warned of, or refused with --strict" {
    fits_make types right.fits # CFITSIO writes sums into every second HDU: U8 and S16, not S8 between
    run --separate-stderr -0 fits2h5 --strict -g right.fits -o right.h5
    [ -z "$stderr" ]
    cp right.fits data.fits
    put 6000 '\377' data.fits # in the data of U8
    run --separate-stderr -0 fits2h5 -g data.fits -o data.h5
    [[ $stderr == 'fits2h5: warning: data.fits: HDU 1 (U8): its bytes disagree with DATASUM: it was damaged, or '* ]]
    fails_with 3 '*data.fits: HDU 1 (U8): its bytes disagree with DATASUM*' fits2h5 --strict -g data.fits -o out.h5
    [ -z "$(fits2h5 --list data.fits 2>&1 >/dev/null)" ]
    cp right.fits header.fits
    put $((2880 + 6 * 80 + 40)) X header.fits # a comment of U8
    fails_with 3 '*HDU 1 (U8): its bytes disagree with CHECKSUM:*' fits2h5 --strict -g header.fits -o out.h5
    cp data.fits two.fits
    put $((14400 + 6 * 80 + 40)) X two.fits # of S16
    fails_with 3 '*HDU 1 (U8): its bytes disagree with DATASUM, and so in 1 more:*' fits2h5 --strict -g two.fits -o out.h5
    cp right.fits without.fits
    put $((8640 + 2880 + 100)) '\377' without.fits # S8 has no sums
    fits2h5 --strict -g without.fits -o without.h5
    run -3 fits2h5 -q --strict --keep-going -g data.fits right.fits -o some.h5
    [ "$(h5ls some.h5/fits | cut -d ' ' -f 1)" = right ]
    # images, which are summed while they are copied: a pixel, padding, and a block that cannot be made
    for at in 40000 $(($(stat -c %s "$BATS_FILE_TMPDIR/image.fits") - 1)); do
        cp "$BATS_FILE_TMPDIR/image.fits" image.fits
        fits2h5 --strict -f image.fits -o image.h5
        put "$at" '\377' image.fits
        run --separate-stderr -0 fits2h5 -f image.fits -o image.h5
        [[ $stderr == 'fits2h5: warning: image.fits: HDU '*': its bytes disagree with DATASUM: '* ]]
        fails_with 3 '*its bytes disagree with DATASUM: *' fits2h5 --strict image.fits -o out.h5
        [ ! -e out.h5 ]
    done
    sed 's/IVAR    /IVER    /' "$BATS_FILE_TMPDIR/image.fits" >image.fits
    run --separate-stderr -3 fits2h5 image.fits -o out.h5
    [[ $stderr == 'fits2h5: warning: image.fits: HDU 1 (IVER): its bytes disagree with CHECKSUM: '*'HDU IVAR is missing'* ]]
    # ours, and compressed images, whose sums are those of their tables
    h52fits -q data.h5 -o back.fits
    cmp data.fits back.fits
    fits_make tiles tiles.fits
    fits2h5 --strict tiles.fits -o tiles.h5 2>stderr
    run ! grep disagree stderr
}

@test "HDUs are left out by name, as if the file had never had them" {
    local image=$BATS_FILE_TMPDIR/image.fits
    fits2h5 -q -o with.h5 "$image"
    fits2h5 -q --leave-out readnoise,MAS,NONE,FIBERMAPS -o without.h5 "$image"
    h5check without.h5
    h5ls without.h5/image/readnoise && return 1
    h5ls with.h5/image/readnoise
    [ "$(diff <(h5ls with.h5/fits/image | wc -l) <(h5ls without.h5/fits/image | wc -l) | grep -c '^[<>]')" -eq 2 ]
    h5diff with.h5 without.h5 /image/data
    h5diff with.h5 without.h5 /image/ivar
    h5diff with.h5 without.h5 /image/mask
    h5diff with.h5 without.h5 /fibermap
    # what is left comes back, with its sums
    h52fits -q -o back.fits without.h5
    fits2h5 -q --strict -o again.h5 back.fits
    h5diff without.h5 again.h5 /image
    # the first HDU is the file's; a block that needs one says so
    fits2h5 -q --leave-out IMAGE,READNOISE,, --reproducible -o first.h5 "$image"
    h5diff first.h5 with.h5 /image/data
    fails_with 3 '*HDU IVAR is missing*' fits2h5 --leave-out MASK,IVAR -o out.h5 "$image"
}

@test "names that CFITSIO would interpret are names" {
    cp "$BATS_FILE_TMPDIR/psf.fits" 'psf.fits[1][col x=1]'
    fits2h5 -o p.h5 'psf.fits[1][col x=1]'
    h5dump -d /psf/coeff -H p.h5 | grep SIMPLE
    fails_with 3 '*ftp://*' fits2h5 -o out.h5 ftp://localhost/x.fits
}

@test "a file's name with a line break does not break a warning" {
    seq 5000 5100 | awk '{ print $1, 1 + $1 % 7 }' >$'two\nlines.txt'
    run --separate-stderr -0 fits2h5 -o out.h5 $'two\nlines.txt'
    [ "${#stderr_lines[@]}" -eq 3 ]
    [[ ${stderr_lines[0]} == 'fits2h5: warning: two'?'lines.txt: no errors are given'* ]]
}

# without FILE HDU: a copy without that HDU, by renaming it.
rename_hdu() {
    sed "s/EXTNAME = '$2/EXTNAME = '$3/" "$1"
}

@test "missing HDUs and wrong shapes are named" {
    local image=$BATS_FILE_TMPDIR/image.fits psf=$BATS_FILE_TMPDIR/psf.fits word
    rename_hdu "$image" 'IVAR' 'RAVI' >noivar.fits
    fails_with 3 '*noivar.fits: HDU IVAR is missing*--generic*' fits2h5 -o out.h5 noivar.fits
    fits2h5 --generic -o generic.h5 noivar.fits
    rm generic.h5
    # electrons, and nothing else
    for word in 'ADU     ' 'counts  ' 'dn/s    '; do
        sed "s|BUNIT   = 'electron'|BUNIT   = '$word'|" "$image" >adu.fits
        fails_with 3 "*adu.fits: HDU IMAGE: BUNIT is '${word%% *}': a CCD image should be in electrons*--generic*" fits2h5 -o out.h5 adu.fits
    done
    sed "s|BUNIT   = 'electron'|BUNIT   = 'e-      '|" "$image" >e.fits
    fits2h5 -q -o e.h5 e.fits
    rename_hdu "$psf" 'YTRACE' 'TRACEY' >notrace.fits
    fails_with 3 '*notrace.fits: HDU YTRACE is missing*' fits2h5 -o out.h5 notrace.fits
    sed 's/HSIZEX  =/HSIZEQ  =/' "$psf" >nosize.fits
    fails_with 3 '*nosize.fits: HDU 2 (PSF): keyword HSIZEX*' fits2h5 -o out.h5 nosize.fits
    sed "s/PSFVER  = '3'/PSFVER  = '1'/;s/PSFVER  = '3 /PSFVER  = '1 /" "$psf" >version.fits
    fails_with 3 '*version 1*' fits2h5 --as psf -o out.h5 version.fits
    # IVAR, and the PSF's XTRACE, take each other's place
    rename_hdu "$image" 'READNOISE' 'IVAR     ' | sed "0,/EXTNAME = 'IVAR/s//EXTNAME = 'ELSE/" >shape.fits
    fits2h5 --list shape.fits >/dev/null
}

@test "an arm that is not complete is named, and not left out" {
    local part
    specx-sim -q --arm b --fibers 4 --sky-fibers 1 --wavelength 5000,5040 --format hdf5 -o b.h5
    specx-extract -q -w 5000,5040,0.8 -o frame-b.h5 b.h5
    fits2h5 -q "$BATS_FILE_TMPDIR"/{image,psf}.fits | specx-extract -q -w 6500,6540,0.8 | h5merge -q frame-b.h5 - |
        h52fits -q --as spectra -o spectra.fits
    for part in WAVELENGTH FLUX IVAR; do
        rename_hdu spectra.fits "B_$part" "X_$part" >lacks.fits
        fails_with 3 "*lacks.fits: HDU B_$part is missing*--generic*" fits2h5 -q -o x.h5 lacks.fits
    done
    rename_hdu spectra.fits B_MASK X_MASK >lacks.fits
    fits2h5 -q -o x.h5 lacks.fits
    h5ls x.h5/spectra | grep -q '^b '
}

@test "wavelengths that do not increase are refused" {
    need_shared data/formats/coadd-special-dark-27247.fits
    cp "$SPX_SHARED/data/formats/coadd-special-dark-27247.fits" bad.fits
    chmod u+w bad.fits
    local at
    at=$(grep -abom 1 B_WAVELENGTH bad.fits)
    at=${at%%:*}
    # element 10 becomes 0
    head -c 8 /dev/zero | dd of=bad.fits bs=1 seek=$(((at / 2880 + 1) * 2880 + 80)) conv=notrunc status=none
    fails_with 3 '*bad.fits: HDU B_WAVELENGTH: wavelengths do not increase at element 10*' fits2h5 -o out.h5 bad.fits
}

@test "pixels that are not finite stay in images and leave spectra" {
    specx-sim -q --arm r --fibers 4 --sky-fibers 1 --wavelength 6500,6540 --nans 5 --format fits -o nan.fits
    fits2h5 -o nan.h5 nan.fits
    h5check nan.h5
    values nan.h5 /image/data | grep -i nan
    fits2h5 nan.fits | h52fits -o back.fits
    cmp nan.fits back.fits
}

@test "outputs that cannot be" {
    cp "$BATS_FILE_TMPDIR/psf.fits" psf.fits
    fails_with 2 '*both input and output*' fits2h5 -f -o psf.fits psf.fits
    cmp psf.fits "$BATS_FILE_TMPDIR/psf.fits"
    fails_with 4 '*' fits2h5 -o nowhere/out.h5 psf.fits
    : >there.h5
    fails_with 4 '*there.h5*' fits2h5 -o there.h5 psf.fits
    if [ -w /dev/full ]; then
        run --separate-stderr bash -c 'fits2h5 psf.fits >/dev/full'
        [ "$status" -eq 4 ]
    fi
    run --separate-stderr bash -c 'set -o pipefail; fits2h5 "$1" | head -c 1 >/dev/null' bash "$BATS_FILE_TMPDIR/types.fits"
    [ "$status" -eq 4 ] || [ "$status" -eq 0 ] # small enough for the pipe's buffer
    gzip -c psf.fits >psf.fits.gz
    fails_with 4 '*memory*' fits2h5 --max-mem 20k -o out.h5 psf.fits.gz
}
