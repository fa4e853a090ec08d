# Makes C++ of a CUDA source for cuda_runtime.h of this folder. A launch becomes an expression of operators, so that
# neither the kernel's name nor the lists between the brackets have to be understood.
s/<<</ \/ ::spx_emulated::config(/g
s/>>>(/) % ::spx_emulated::args(/g
s/extern __shared__ \([a-z0-9]*\) \([a-z0-9]*\)\[\];/\1 *const \2 = (\1 *)::spx_emulated::dynamic_shared();/
/asm("mma.sync.aligned.m8n8k4/,/;/c\    ::spx_emulated::multiply_add_8x8x4(d, a, b);
s/asm("rcp.approx.ftz.f64.*/r = 1.0 \/ v;/
/asm volatile("cp.async.ca.shared.global/,/;$/c\    *to = there ? *from : 0.0;
