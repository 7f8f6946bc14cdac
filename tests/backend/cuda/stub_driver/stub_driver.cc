// A driver without a GPU, for NVIDIA's libraries to load beside: it says of all that it cannot,
// but for code, which it takes and never runs. So cuDNN plans and compiles for a device that is
// described to it. Only those functions are here that it looks for.

// NOLINTBEGIN(readability-identifier-naming): the names are those of the driver.
extern "C" {
int cannot() { return 34; /* CUDA_ERROR_STUB_LIBRARY */ }
int takes(void** made) {
  static char token;
  *made = &token;
  return 0;
}
[[gnu::alias("cannot")]] int cuCtxGetCurrent(), cuCtxGetDevice(), cuCtxGetLimit(),
    cuCtxPopCurrent(), cuCtxPushCurrent(), cuDeviceGet(), cuDeviceGetAttribute(),
    cuDeviceGetCount(), cuDevicePrimaryCtxRelease(), cuDevicePrimaryCtxReset(),
    cuDevicePrimaryCtxRetain(), cuDriverGetVersion(), cuFuncGetAttribute(), cuFuncSetAttribute(),
    cuInit(), cuLaunchCooperativeKernel(), cuLaunchKernel(), cuLaunchKernelEx(),
    cuLibraryLoadFromFile(), cuLinkAddData(), cuLinkAddData_v2(), cuLinkAddFile_v2(),
    cuLinkComplete(), cuLinkCreate(), cuLinkCreate_v2(), cuLinkDestroy(), cuMemcpyDtoH_v2(),
    cuModuleGetFunction(), cuModuleGetGlobal_v2(), cuModuleLoadData(), cuModuleLoadDataEx(),
    cuModuleLoadFatBinary(), cuModuleUnload(), cuOccupancyMaxPotentialClusterSize(),
    cuStreamGetCtx(), cuStreamGetGreenCtx(), cuStreamSynchronize(), cuTensorMapEncodeIm2col(),
    cuTensorMapEncodeTiled();
[[gnu::alias("takes")]] int cuLibraryLoadData(void**), cuLibraryGetKernel(void**),
    cuKernelGetFunction(void**);
int cuKernelSetAttribute() { return 0; }
int cuLibraryUnload() { return 0; }
int cuKernelGetAttribute(int* value) { return *value = 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks) {
  *blocks = 1;
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "a driver without a GPU";
  return 0;
}
int cuGetErrorName(int, const char** text) {
  *text = "CUDA_ERROR_STUB_LIBRARY";
  return 0;
}
}
// NOLINTEND(readability-identifier-naming)
