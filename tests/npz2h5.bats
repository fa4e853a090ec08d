# npz2h5: networks from NumPy's archives, and templates of them.
load common

setup() {
    mkdir "$BATS_TEST_TMPDIR/here" && cd "$BATS_TEST_TMPDIR/here" || return
    mock_network net.npz
    mock_network --packed packed.npz
}

values() {
    h5dump -y -w 0 -d "$1" "$2" |
        awk '/DATA \{/ && !n++ { on = 1; next } /\}/ { on = 0 } on' | tr -d ',\n' | sed 's/^ *//; s/  */ /g'
}

@test "npz2h5: weights, scaling and wavelengths, stored or packed" {
    npz2h5 -l teff:1000,logg,feh,vturb -o a.h5 net.npz
    h5check a.h5
    npz2h5 -l teff:1000,logg,feh,vturb -o b.h5 packed.npz
    h5diff a.h5 b.h5 /network
    [ "$(values /network/size a.h5)" = "4 8 8 400" ]
    [ "$(values /network/lo a.h5)" = "4500 3.5 -1.5 1" ]
    [ "$(values /network/offset a.h5)" = "5500 4.25 -0.5 1.5" ]
    [ "$(values /network/weight a.h5 | cut -d' ' -f 2)" = 0.991665 ] # sin 1.7
    [[ "$(values /network/wavelength a.h5)" == "5000 5000.5 "*" 5199.5" ]]
    npz2h5 --air -w linear:4000:0.5 -l teff:1000,logg,feh,vturb -o c.h5 net.npz
    [[ "$(values /network/wavelength c.h5)" == "4000 4000.5 "* ]]
    h5dump -a /network/wavelength/medium c.h5 | grep -q air
}

@test "npz2h5: an input that is held goes into the biases" {
    npz2h5 -l teff:1000,logg,feh,vturb --fix vturb=1.5 --fix logg=4.25 -o a.h5 net.npz
    h5check a.h5
    [ "$(values /network/size a.h5)" = "2 8 8 400" ]
    npz2h5 -l teff:1000,logg,feh,vturb -o b.h5 net.npz
    # both in the middle of their range, so that nothing is added
    h5diff a.h5 b.h5 /network/bias
    npz2h5 -l teff:1000,logg,feh,vturb --fix vturb=2 -o c.h5 net.npz
    # the first: 0.4 sin 0 + sin(5.1) / 2
    [ "$(values /network/bias c.h5 | cut -d' ' -f 1)" = -0.462907 ]
}

@test "npz2h5 refuses what is no such network" {
    fails_with 2 '*--labels*' npz2h5 -o x.h5 net.npz
    # the name that --gives had
    fails_with 2 '*--output lnflux: *--gives lnflux *' npz2h5 --output lnflux -l a,b,c,d -o x.h5 net.npz
    fails_with 2 '*--output flux: *--gives flux *' npz2h5 -l a,b,c,d --output=flux net.npz
    [ ! -e x.h5 ] && [ ! -e flux ]
    fails_with 3 '*net.npz: w_array_0 is for 4 inputs, but there are 2: *--labels' npz2h5 -l a,b -o x.h5 net.npz
    fails_with 2 '*--fix mass=1*' npz2h5 -l teff,logg,feh,vturb --fix mass=1 -o x.h5 net.npz
    fails_with 2 "*two inputs are called 'b'*" npz2h5 -l a,b,c,b -o x.h5 net.npz
    fails_with 2 '*--fix vturb=3: net.npz was trained for 1 to 2*' \
        npz2h5 -l teff:1000,logg,feh,vturb --fix vturb=3 -o x.h5 net.npz
    fails_with 2 '*nothing is left*' npz2h5 -l a,b,c,d --fix a=5 --fix b=4 --fix c=0 --fix d=1 -o x.h5 net.npz
    fails_with 2 '*START:STEP*' npz2h5 -l a,b,c,d -w linear:1 -o x.h5 net.npz
    fails_with 2 '*--wavelength linear:5000:0: does not increase*' npz2h5 -l a,b,c,d -w linear:5000:0 -o x.h5 net.npz
    fails_with 3 '*--wavelength: net.npz: there is no array lambda: the archive has w_array_0 (8, 4), w_array_1 (8, 8), *' npz2h5 -l a,b,c,d -w lambda -o x.h5 net.npz
    fails_with 3 '*x_min has the shape (4,), wanted is (400,)' npz2h5 -l a,b,c,d -w x_min -o x.h5 net.npz
    fails_with 2 '*--axis is for a network for each pixel*leave it out' \
        npz2h5 -l teff:1000,b,c,d --axis teff=5000,5500 -o x.h5 net.npz
    mock_network --pixels pixels.npz
    fails_with 3 '*pixels.npz: w_array_0 is for 4 inputs, but there are 2: *--labels' npz2h5 -l a,b -o x.h5 pixels.npz
    fails_with 2 '*--axis b=1,2: NAME=V,V,... with an input that is not held*' \
        npz2h5 -l a,b,c,d --fix b=4 --axis b=1,2 -o x.h5 pixels.npz
    fails_with 2 '*--axis b=4,4: the nodes do not increase' npz2h5 -l a,b,c,d --axis b=4,4 -o x.h5 pixels.npz
    fails_with 2 '*--axis b: the network was trained for 3.5 to 5' npz2h5 -l a,b,c,d --axis b=3,4 -o x.h5 pixels.npz
    fails_with 2 '*more than 100000 spectra*--fix*' npz2h5 -l a,b,c,d --axis "a=$(seq -s, 4.6 0.03 6.4)" \
        --axis "b=$(seq -s, 3.6 0.02 4.8)" -o x.h5 pixels.npz
    [ ! -e x.h5 ]
    # what is not finite in single precision, or as a range
    fails_with 2 '*--fix d=1e+300*trained for*' npz2h5 -l a,b,c,d --fix d=1e300 -o x.h5 net.npz
    fails_with 3 '*/network/lo*too large*' npz2h5 -l a:1e308,b,c,d -o x.h5 net.npz
    fails_with 3 '*absent.npz: cannot open*' npz2h5 -l a,b,c,d -o x.h5 absent.npz
    fails_with 2 '*one .npz file*' npz2h5 -l a,b,c,d -o x.h5 net.npz packed.npz
    head -c 3000 net.npz >cut.npz
    fails_with 3 '*cut.npz*no .npz archive*' npz2h5 -l a,b,c,d -o x.h5 cut.npz
    echo text >text.npz
    fails_with 3 '*no .npz archive*NumPy*' npz2h5 -l a,b,c,d -o x.h5 text.npz
    mkdir folder
    fails_with 3 'npz2h5: folder: is a directory: give a file' npz2h5 -l a,b,c,d -o x.h5 folder
}

@test "npz2h5: a network for each pixel, the first form of The Payne, becomes a library" {
    local form want
    for form in pixels two; do
        want=$(mock_network --$form $form.npz 5300 4.5 -0.7 1.2 62)
        npz2h5 -q -l teff:1000,logg,feh,vturb --fix vturb=1.2 --axis teff=4700,5300,6100 --axis logg=4,4.5 \
            --axis feh=-1,-0.7,0 -o $form.h5 $form.npz
        h5check $form.h5
        [[ "$(values /library/parname $form.h5)" == *teff*logg*feh* ]]
        # teff 5300, logg 4.5, feh -0.7: the axis of the last input is the fastest
        [ "$(values /library/params $form.h5 | cut -d' ' -f 31-33)" = "5300 4.5 -0.7" ]
        values /library/flux $form.h5 | awk -v want="$want" -v i=$((10 * 400 + 62 + 1)) '{
            d = $i - want; print $i, want; exit !(d * d < 1e-12 && want < 0.95 && want > 0) }'
    done
    # six nodes over the range, and another activation
    npz2h5 -q -l teff:1000,logg,feh,vturb --fix vturb=1.2 --fix logg=4 --fix feh=0 -o few.h5 pixels.npz
    [ "$(values /library/params few.h5)" = "4500 4900 5300 5700 6100 6500" ]
    npz2h5 -q -l teff:1000,logg,feh,vturb --fix vturb=1.2 --fix logg=4 --fix feh=0 --activation leaky -o leaky.h5 pixels.npz
    run ! h5diff -q few.h5 leaky.h5 /library/flux
    rvs-template -q -s b:5030:5170:0.5:FWHM=1.8 -o t.h5 two.h5
    h5check t.h5
}

@test "rvs-template: a network in place of a library" {
    npz2h5 -l teff:1000,logg,feh,vturb --fix vturb=1.2 -o net.h5 net.npz
    rvs-template -s b:5030:5170:0.5:FWHM=1.8 -s r:5100:5180:0.5:R=3000:air -j 1 -o t.h5 net.h5
    h5check t.h5
    [ "$(values /templates/b/nn/size t.h5)" = "3 8 8 8" ]
    [[ "$(values /templates/b/parname t.h5)" == *teff*logg*feh* ]]
    rvs-template -q -s b:5030:5170:0.5:FWHM=1.8 -s r:5100:5180:0.5:R=3000:air -j 3 -o u.h5 net.h5
    h5diff t.h5 u.h5 /templates
    fails_with 2 '*nothing to train*' rvs-template --train-nn -s b:5030:5170:0.5:FWHM=1.8 -o x.h5 net.h5
    # what only libraries have is refused, not ignored
    for option in --norm=none --log-param=teff --interpolator=grid --pca=1e-3 --pca-max=0 --ccf-every=2; do
        fails_with 2 '*for libraries*' rvs-template $option -s b:5030:5170:0.5:FWHM=1.8 -o x.h5 net.h5
    done
    fails_with 3 '*covers*' rvs-template -s b:4000:5170:0.5:FWHM=1.8 -o x.h5 net.h5
    # the exponential of what is blurred is not what is blurred of the exponential
    npz2h5 --gives lnflux -l teff:1000,logg,feh,vturb --fix vturb=1.2 -o ln.h5 net.npz
    fails_with 2 '*cannot be blurred*' rvs-template -s b:5030:5170:0.5:FWHM=1.8 -o x.h5 ln.h5
    rvs-template -q -s b:5030:5170:0.5:FWHM=1.8 --library-resolution FWHM=1.8 -o v.h5 ln.h5
    h5check v.h5
    h5edit net.h5 set /network/weight 3 nan
    fails_with 3 '*net.h5*weight*not finite*' rvs-template -s b:5030:5170:0.5:FWHM=1.8 -o x.h5 net.h5
}
