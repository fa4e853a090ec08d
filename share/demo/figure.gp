# gnuplot -e "star='...'" figure.gp: star-b.txt, star-r.txt, star-z.txt (wavelength, electrons with sky, calibrated flux,
# ivar, model) and residuals.txt of the report become demo.png.
set terminal pngcairo size 1200,1100 font "Sans,11"
set output "demo.png"
set multiplot layout 4,1 title star
set bmargin 2.4
set tmargin 1
set lmargin 12
set rmargin 9
set key horizontal top right
colour(arm) = arm eq "b" ? "#2050a0" : arm eq "r" ? "#c02020" : "#802080"
stats [*:*] "<cat star-b.txt star-r.txt star-z.txt" using 5 name "TOP" nooutput
set ylabel "before: electrons / Å"
set xrange [3600:9824]
set logscale y
set yrange [1:*]
plot for [arm in "b r z"] sprintf("star-%s.txt", arm) using 1:($2 > 1 ? $2 : 1) with lines lc rgb colour(arm) title "camera ".arm
unset logscale y
set ylabel "after: relative flux"
set yrange [0:1.1 * TOP_max]
plot for [arm in "b r z"] sprintf("star-%s.txt", arm) using 1:3 with lines lc rgb "#888888" title arm eq "b" ? "calibrated" : "", \
     for [arm in "b r z"] sprintf("star-%s.txt", arm) using 1:5 with lines lc rgb colour(arm) title "model, ".arm
set xrange [8400:8900]
set yrange [*:*]
set xlabel "wavelength (Å)" offset 0,0.7
set y2label "before: electrons / Å"
set y2tics
set ytics nomirror
plot "star-z.txt" using 1:2 with lines lc rgb "#c0a060" axes x1y2 title "before", \
     '' using 1:3 with steps lc rgb "#888888" title "after", '' using 1:5 with lines lw 1.5 lc rgb "#c02020" title "model"
unset y2label
unset y2tics
set ytics mirror
set bmargin 3
set xrange [*:*]
set xlabel "true velocity (km/s)" offset 0,0.5
set ylabel "measured − true (km/s)"
set xzeroaxis
set key off
plot "residuals.txt" using 1:2:3 with yerrorbars pt 7 ps 0.7 lc rgb "#2050a0"
unset multiplot
