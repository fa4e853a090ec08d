# gnuplot -e "star='...'" figure.gp: star-b.txt, star-r.txt, star-z.txt (wavelength, flux, error, model) and
# residuals.txt of the report become demo.png.
set terminal pngcairo size 1200,900 font "Sans,11"
set output "demo.png"
set multiplot layout 4,1 title star
set bmargin 2.4
set tmargin 1
set lmargin 10
set rmargin 3
set ylabel "electrons / Å"
do for [arm in "b r z"] {
    if (arm eq "z") { set xlabel "wavelength (Å)" offset 0,0.7 } else { unset xlabel }
    set key horizontal top right
    plot sprintf("star-%s.txt", arm) using 1:2 with steps lc rgb "#888888" title "camera ".arm, \
         '' using 1:4 with lines lw 1.5 lc rgb "#c02020" title "model"
}
set bmargin 3
set xlabel "true velocity (km/s)" offset 0,0.5
set ylabel "measured − true (km/s)"
set xzeroaxis
set key off
plot "residuals.txt" using 1:2:3 with yerrorbars pt 7 ps 0.7 lc rgb "#2050a0"
unset multiplot
