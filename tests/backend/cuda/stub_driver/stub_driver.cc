// A driver without a GPU, for NVIDIA's libraries to load beside: it says of all that it cannot,
// but for code, which it takes and never runs. So cuDNN plans and compiles for a device that is
// described to it. Only those functions are here that it looks for.

// NOLINTBEGIN(readability-identifier-naming): the names are those of the driver.
#define RIDGE_CANNOT(name) \
  int name() { return 34; /* CUDA_ERROR_STUB_LIBRARY */ }
#define RIDGE_TAKES(name) \
  int name(void** made) { \
    static char token;    \
    *made = &token;       \
    return 0;             \
  }

extern "C" {
RIDGE_CANNOT(cuCtxGetCurrent)
RIDGE_CANNOT(cuCtxGetDevice)
RIDGE_CANNOT(cuCtxGetLimit)
RIDGE_CANNOT(cuCtxPopCurrent)
RIDGE_CANNOT(cuCtxPushCurrent)
RIDGE_CANNOT(cuDeviceGet)
RIDGE_CANNOT(cuDeviceGetAttribute)
RIDGE_CANNOT(cuDeviceGetCount)
RIDGE_CANNOT(cuDevicePrimaryCtxRelease)
RIDGE_CANNOT(cuDevicePrimaryCtxReset)
RIDGE_CANNOT(cuDevicePrimaryCtxRetain)
RIDGE_CANNOT(cuDriverGetVersion)
RIDGE_CANNOT(cuFuncGetAttribute)
RIDGE_CANNOT(cuFuncSetAttribute)
RIDGE_CANNOT(cuInit)
RIDGE_CANNOT(cuLaunchCooperativeKernel)
RIDGE_CANNOT(cuLaunchKernel)
RIDGE_CANNOT(cuLaunchKernelEx)
RIDGE_CANNOT(cuLibraryLoadFromFile)
RIDGE_CANNOT(cuLinkAddData)
RIDGE_CANNOT(cuLinkAddData_v2)
RIDGE_CANNOT(cuLinkAddFile_v2)
RIDGE_CANNOT(cuLinkComplete)
RIDGE_CANNOT(cuLinkCreate)
RIDGE_CANNOT(cuLinkCreate_v2)
RIDGE_CANNOT(cuLinkDestroy)
RIDGE_CANNOT(cuMemcpyDtoH_v2)
RIDGE_CANNOT(cuModuleGetFunction)
RIDGE_CANNOT(cuModuleGetGlobal_v2)
RIDGE_CANNOT(cuModuleLoadData)
RIDGE_CANNOT(cuModuleLoadDataEx)
RIDGE_CANNOT(cuModuleLoadFatBinary)
RIDGE_CANNOT(cuModuleUnload)
RIDGE_CANNOT(cuOccupancyMaxPotentialClusterSize)
RIDGE_CANNOT(cuStreamGetCtx)
RIDGE_CANNOT(cuStreamGetGreenCtx)
RIDGE_CANNOT(cuStreamSynchronize)
RIDGE_CANNOT(cuTensorMapEncodeIm2col)
RIDGE_CANNOT(cuTensorMapEncodeTiled)
RIDGE_TAKES(cuLibraryLoadData)
RIDGE_TAKES(cuLibraryGetKernel)
RIDGE_TAKES(cuKernelGetFunction)
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
