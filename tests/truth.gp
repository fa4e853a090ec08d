# gnuplot -e "table='FILE'; name='TEXT'; out='FILE.png'" truth.gp: the table of frame_truth as a picture.
set terminal pngcairo size 1200,1000 font "Sans,11"
set output out
set multiplot layout 3,1 title name
set lmargin 11
set rmargin 3
set key top left
set xlabel "wavelength (Å)" offset 0,0.5
set ylabel "electrons / Å"
plot table index 2 using 1:2:3 with yerrorbars pt 7 ps 0.5 lc rgb "#404040" title "extracted", \
     '' index 2 using 1:4 with lines lw 1.5 lc rgb "#c02020" title "R · truth"
set xlabel "pull (flux − R · truth) √ivar"
set ylabel "density"
set logscale y
set yrange [1e-5:1]
set xrange [-5:5]
plot table index 0 using 1:2 with histeps lc rgb "#2050a0" title "bins without masked pixels", \
     exp(-0.5 * x**2) / sqrt(2 * pi) with lines lc rgb "#c02020" title "normal distribution"
unset logscale y
set autoscale
set xlabel "expected signal-to-noise ratio of a bin"
set ylabel "mean pull"
set logscale x
set xzeroaxis lt -1
set yrange [-0.3:0.3]
plot table index 1 using 1:4:5 with yerrorbars pt 7 ps 0.7 lc rgb "#2050a0" title "bias"
unset multiplot
