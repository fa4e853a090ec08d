# specx-sim: products, truth, seeds, inputs, libraries, refusals.

load common

sim() {
    specx-sim -q --fibers 5 --sky-fibers 1 --wavelength 6500,6540 "$@"
}

# column FILE NAME: a column of the truth, without its heading.
column() {
    h5table --csv -c "$2" "$1" | tail -n +2
}

# values FILE DATASET: all values, one a line.
values() {
    h5dump -A 0 -y -w 1 -d "$2" "$1" | awk '/DATA \{/ { data = 1; next } data && /\}/ { exit } data { gsub(/[ ,]/, ""); if ($0 != "") print }'
}

@test "image, PSF, fibermap and truth are valid products" {
    sim --truth truth.h5 -o image.h5
    h5check image.h5 truth.h5
    [[ $(h5dump -a /image/camera image.h5) == *'"r0"'* ]]
    h5table --csv -t /fibermap -c FIBER,OBJTYPE image.h5 >map.csv
    [ "$(wc -l <map.csv)" -eq 6 ]
    [ "$(grep -c SKY map.csv)" -eq 1 ]
    h5dump -d /provenance/000 image.h5 | grep 'seed=1'
    h5dump -d /provenance/000 truth.h5 | grep 'seed=1'
    h5dump -H -d /truth/flux truth.h5 | grep 'SIMPLE { ( 5, 1601 )'
}

@test "the image feeds the extraction through a pipe" {
    sim | specx-extract -q -w 6500,6540,0.8 >frame.h5
    h5check frame.h5
    h5table --csv -t /fibermap -c OBJTYPE frame.h5 | grep SKY
}

@test "threads change nothing, and the same command gives the same bytes" {
    sim -j 1 --reproducible >one.h5
    sim -j 2 --reproducible >two.h5
    h5diff one.h5 two.h5 /image
    sim -j 2 --reproducible >again.h5
    cmp two.h5 again.h5
}

@test "cameras of one seed share their stars, not their noise; another seed has other stars" {
    sim --arm r --truth r.h5 -o r-image.h5
    sim --arm z --wavelength 6500,6540 --truth z.h5 -o z-image.h5
    column r.h5 TARGETID,TEFF,LOGG,FEH,ALPHAFE,VRAD,VSINI,MAG >r.txt
    column z.h5 TARGETID,TEFF,LOGG,FEH,ALPHAFE,VRAD,VSINI,MAG >z.txt
    cmp r.txt z.txt
    sim --seed 2 --truth other.h5 -o other-image.h5
    column other.h5 TARGETID,TEFF,LOGG,FEH,ALPHAFE,VRAD,VSINI,MAG >other.txt
    run ! cmp -s r.txt other.txt
    # blank exposures differ by their noise alone
    sim --arm r --no-sky --sky-fibers 5 -o a.h5
    sim --arm r --no-sky --sky-fibers 5 --seed 2 -o b.h5
    run ! h5diff -q a.h5 b.h5 /image/data
}

@test "targets stay in their ranges" {
    specx-sim -q -n 40 --sky-fibers 0 --wavelength 6500,6510 --step 1 --teff 5000:5100 --logg 4 --feh -1:-0.9 \
        --velocity 10:20 --vsini 3 --mag 17:17.5 --truth t.h5 -o i.h5
    column t.h5 TEFF,LOGG,FEH,VRAD,VSINI,MAG |
        awk -F, '$1 < 5000 || $1 > 5100 || $2 != 4 || $3 < -1 || $3 > -0.9 || $4 < 10 || $4 > 20 || $5 != 3 || $6 < 17 || $6 > 17.5 { exit 1 }
                 END { if (NR != 40) exit 1 }'
}

@test "without noise the electrons of the image are those of the truth" {
    sim --no-noise --no-sky --cosmics 0 --bad-columns 0 --truth t.h5 -o i.h5
    sent=$(values t.h5 /truth/flux | awk '{ s += $1 * 0.1 } END { printf "%.1f", s }')
    values i.h5 /image/data | awk -v sent="$sent" '{ s += $1 } END { d = s / sent - 1; exit !(sent > 1000 && d < 1e-5 && d > -1e-5) }'
    # and with the sky there are more
    sim --no-noise --sky --truth t.h5 -o i.h5 -f
    values t.h5 /truth/flux | awk -v less="$sent" '{ s += $1 * 0.1 } END { exit !(s > less * 1.01) }'
    h5dump -H -d /truth/sky t.h5
}

@test "FITS files hold the same as the blocks, and the PSF comes back from its file" {
    sim -o image.h5 --psf-output psf.fits
    sim -o image.fits
    fits2h5 -q image.fits psf.fits -o both.h5
    h5check both.h5
    for d in /image/data /image/ivar /image/mask /image/readnoise /fibermap /psf/coeff /psf/xtrace /psf/ytrace; do
        h5diff image.h5 both.h5 $d
    done
    # the PSF as FITS or HDF5 gives the same exposure
    sim --psf psf.fits -o from-fits.h5
    sim --psf image.h5 -o from-hdf5.h5
    h5diff from-fits.h5 from-hdf5.h5 /image
}

@test "a real PSF, some of its fibres" {
    need_shared data/extract/psf-r0-00067784.fits
    specx-sim -q --psf "$SPX_SHARED/data/extract/psf-r0-00067784.fits" --fibers 100:104 --wavelength 6400,6450 \
        --sky-fibers 1 --truth t.h5 -o i.h5
    h5dump -H -d /image/data i.h5 | grep '( 4128, 4114 )'
    [ "$(column t.h5 FIBER | tr '\n' ' ')" = '100 101 102 103 ' ]
    h5table --csv -t /fibermap -c FIBER,OBJTYPE i.h5 >map.csv
    [ "$(grep -c BAD map.csv)" -eq 496 ]
    grep -q '^100,TGT' map.csv
}

@test "defects are flagged" {
    sim --gap 40:44 --saturated 2 --nans 5 --bad-columns 2 --cosmics 500 -o i.h5
    # bits 0 (gap, columns, NaN), 3 (saturated), 4 (cosmics)
    values i.h5 /image/mask | awk '{ n[$1]++ } END { exit !(n[1] > 300 && n[8] > 50 && n[16] > 20) }'
    h5dump -d /image/data i.h5 | grep nan >out.txt
    # the extraction copes
    specx-extract -q i.h5 -w 6500,6540,0.8 -o frame.h5
    h5check frame.h5
}

@test "given spectra: a list of text files, a truth-like block, and fibres to match" {
    seq 6400 0.8 6600 | awk '{ print $1, 100 }' >flat.txt
    awk '{ print $1, 2 * $2, "ignored" } END { print "# comment" }' flat.txt >twice.txt
    printf 'flat.txt\n# a comment\n\ntwice.txt\n' >list
    specx-sim -q --arm r -w 6450,6550 --no-sky --no-noise --cosmics 0 --bad-columns 0 --truth t.h5 -o i.h5 list
    h5check i.h5 t.h5
    specx-extract -q -w 6460,6540,0.8 i.h5 -o frame.h5
    values frame.h5 /frame/flux | awk 'NR % 101 > 10 && NR % 101 < 90 { want = NR <= 101 ? 100 : 200; if ($1 < want * 0.998 || $1 > want * 1.002) exit 1 }'
    # back in as a block: a frame
    specx-sim -q --arm r -w 6450,6550 --no-sky -o again.h5 frame.h5
    h5check again.h5
    fails_with 2 '*2 spectra for 3 fibres*' specx-sim --fibers 3 -o x.h5 list
    sed '5s/100/many/' flat.txt >bad.txt
    echo bad.txt >badlist
    fails_with 3 '*bad.txt:5:*' specx-sim -o x.h5 badlist
    head -50 flat.txt >short.txt
    printf 'flat.txt\nshort.txt\n' >mixed
    fails_with 3 '*other wavelengths*' specx-sim -o x.h5 mixed
    echo absent.txt >lost
    fails_with 3 '*absent.txt*' specx-sim -o x.h5 lost
    : >empty
    fails_with 3 '*names no files*' specx-sim -o x.h5 empty
}

@test "stars from a library block" {
    specx-sim -q --library stars --wavelength 6400,6650 --axis teff=5000,5500 --axis logg=4 --axis feh=-1 --axis alpha=0
    fits2h5 -q stars -o library.h5
    sim --models library.h5 --velocity 50 --truth t.h5 -o i.h5
    h5check i.h5 t.h5
    column t.h5 OBJTYPE,TEFF,LOGG,VRAD | grep TGT | awk -F, '($2 != 5000 && $2 != 5500) || $3 != 4 || $4 != 50 { exit 1 }'
    # the built-in star of the same parameters is the same star
    teff=$(column t.h5 OBJTYPE,TEFF | awk -F, '/TGT/ { print $2; exit }')
    sim --models library.h5 --velocity 0 --vsini 0 --mag 17 --no-sky --truth a.h5 -o a-image.h5
    sim --teff "$teff" --logg 4 --feh -1 --alpha 0 --velocity 0 --vsini 0 --mag 17 --no-sky --truth b.h5 -o b-image.h5
    paste <(values a.h5 /truth/flux | head -1600) <(values b.h5 /truth/flux | head -1600) |
        awk '{ r = $1 / $2; if (NR == 1) first = r; if (r / first > 1.0002 || r / first < 0.9998) exit 1 }'
    fails_with 3 '*covers*' specx-sim --models library.h5 --arm z -o x.h5
}

@test "library: PHOENIX layout, atomic, never over something else" {
    lib=(specx-sim -q --library stars --wavelength "6400,6450" --axis "teff=5000,5500" --axis logg=4.5 --axis "feh=-0.5,0"
        --axis "alpha=0,0.4")
    "${lib[@]}"
    [ "$(find stars -name 'lte*.fits' | wc -l)" -eq 8 ]
    [ -e stars/lte05500-4.50-0.5.Alpha=+0.40.SPECPIPE-SYNTHETIC.fits ]
    [ -e stars/WAVE_SPECPIPE-SYNTHETIC.fits ]
    head -c 2880 stars/lte05500-4.50-0.5.Alpha=+0.40.SPECPIPE-SYNTHETIC.fits | grep -q 'PHXALPHA= *0.4'
    fails_with 4 '*give -f*' "${lib[@]}"
    "${lib[@]}" -f --axis alpha=0
    [ "$(find stars -name 'lte*.fits' | wc -l)" -eq 4 ]
    mkdir precious
    echo dear >precious/letter
    fails_with 4 '*is not a library*' specx-sim --library precious -f --axis teff=5000
    [ -e precious/letter ]
    mkdir empty
    specx-sim -q --library empty/ --wavelength 6400,6410 --axis teff=5000
    [ -e empty/WAVE_SPECPIPE-SYNTHETIC.fits ]
    fails_with 4 '*cannot make the folder*' specx-sim --library /nowhere/stars
    fails_with 2 '*two models*' specx-sim --library new --axis teff=5000,5000 --wavelength 6400,6410
    fails_with 2 '*teff=*' specx-sim --library new --axis mass=1
    fails_with 2 '*takes no input*' specx-sim --library new -o out.h5
    ls -A >names
    run ! grep -q '^\.' names
}

@test "an interrupted library leaves nothing behind" {
    # bash gives background jobs an ignored SIGINT; SIGTERM arrives
    specx-sim -q --library stars &
    pid=$!
    wait_for "$pid" compgen -G '.stars.*'
    kill "$pid"
    wait "$pid" && return 1
    [ -z "$(ls -A)" ]
}

@test "a petal, a tile, standards" {
    sim --petal 3 --tile 1234 --standards 2 --psf-output psf.fits --truth truth.h5 -o image.fits
    fits2h5 -q image.fits psf.fits -o image.h5
    h5check image.h5 truth.h5
    [ "$(h5table --csv -t /fibermap -c FIBER,DESI_TARGET image.h5 | tail -n +2 | paste -sd ' ')" = \
        "1500,$((1 << 35)) 1501,$((1 << 35)) 1502,0 1503,0 1504,0" ]
    [ "$(column truth.h5 FIBER | paste -sd ' ')" = '1500 1501 1502 1503 1504' ]
    head -c 2880 image.fits | fold -w 80 | grep -q "^TILEID  = *1234 "
    h5dump -a /image/camera image.h5 | grep -qF '"r3"'
    h5dump -a /psf/camera image.h5 | grep -qF '"r3"'
    # the light is the same, and lamps have no standards
    sim -o plain.h5
    h5diff plain.h5 image.h5 /image/data
    sim --flat --standards 2 -o flat.h5
    run ! h5table -t /fibermap -c DESI_TARGET flat.h5
}

@test "options that make no sense" {
    fails_with 2 'specx-sim: --sky-fibers: 4 sky fibres of 3*' specx-sim -n 3 --sky-fibers 4 -o x.h5
    fails_with 2 "specx-sim: --fibers: '0' should be a number above 0 or FIRST:LAST*" specx-sim -n 0 -o x.h5
    fails_with 2 '*--teff*' specx-sim --teff hot -o x.h5
    fails_with 2 '*teff from 6000 to 5000*' specx-sim --teff 6000:5000 -o x.h5
    fails_with 2 '*--wavelength*' specx-sim -w 6000 -o x.h5
    fails_with 2 '*--wavelength*' specx-sim -w 6100,6000 -o x.h5
    fails_with 2 '*3000 to 11000*' specx-sim -w 2000,2100 -o x.h5
    fails_with 2 '*--fibers*' specx-sim -n 5:3 -o x.h5
    fails_with 2 '*9000 fibres*1 to 5000*' specx-sim -n 9000 -o x.h5
    fails_with 2 'specx-sim: --snr: signal-to-noise ratio 0*' specx-sim --snr 0 -o x.h5
    fails_with 2 '*--arm*' specx-sim --arm q -o x.h5
    fails_with 2 '*--step*' specx-sim --step 0 -o x.h5
    fails_with 2 '*--gap*' specx-sim --gap 10 --gap 12:11 -o x.h5
    fails_with 2 '*--gap*rows 0 to *' specx-sim --fibers 2 -w 6400,6420 --gap 5000:5010 -o x.h5
    fails_with 2 '*two outputs*' specx-sim --truth x.h5 -o x.h5
    fails_with 2 '*--axis is for --library*' specx-sim --axis teff=5000 -o x.h5
    fails_with 2 '*standard output*' specx-sim -n 2 -w 6500,6510 --truth - -o x.h5
}

@test "inputs and outputs that cannot be used" {
    echo 'not a PSF' >text
    fails_with 3 '*text*' specx-sim --psf text -o x.h5
    fails_with 3 '*absent*' specx-sim --psf absent -o x.h5
    sim -o image.h5
    fails_with 3 '*image.h5*' specx-sim --models image.h5 -o x.h5
    fails_with 2 '*both input and output*' specx-sim --psf image.h5 -f -o image.h5
    fails_with 4 '*give -f*' sim -o image.h5
    fails_with 4 '*nowhere*' sim -o /nowhere/x.h5
    fails_with 4 '*nowhere*' sim --truth /nowhere/t.h5 -o x.h5
    fails_with 4 '*' sim -o /dev/full
    fails_with 4 '*' sim --format fits -o /dev/full
    fails_with 4 '*memory*' specx-sim --max-mem 1M -o x.h5
}

@test "refusals of a PSF name its file" {
    sim -o wide.h5
    fails_with 2 '*wide.h5: has 5 fibres, 9 are wanted: use --fibers*' specx-sim --psf wide.h5 --fibers 9 -o x.h5
    cp wide.h5 orders.h5
    psf_edit orders.h5 orders 6490:6540
    fails_with 3 '*orders.h5: *wave_range*' specx-sim --psf orders.h5 --flat --shift 0.1,0.1 -o x.h5
    h5edit wide.h5 set /psf/coeff 0 -9
    fails_with 3 '*wide.h5: PSF of fibre 0 at *' specx-sim --psf wide.h5 --flat -o x.h5
}

@test "a PSF of another type is refused with its name" {
    need_shared data/formats/psf-gausshermite2_boss_r2.fits
    LC_ALL=C sed 's/GAUSS-HERMITE2/PIXELATED-SPOT/' "$SPX_SHARED/data/formats/psf-gausshermite2_boss_r2.fits" >odd.fits
    fails_with 3 '*PIXELATED-SPOT*' specx-sim --psf odd.fits -o x.h5
}
