# Writes a linker script that asks for every symbol of ridge that PLUGIN lacks:
#   cmake -DNM=nm -DPLUGIN=libridge_cuda.so -DOUT=plugin_needs.ld -P plugin_needs.cmake
execute_process(COMMAND ${NM} -D --undefined-only ${PLUGIN}
                OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "_Z[A-Za-z0-9_]*5ridge[A-Za-z0-9_]*" names "${symbols}")
if(NOT names)
  message(FATAL_ERROR "${PLUGIN} needs nothing of ridge: is it the plugin?")
endif()
list(JOIN names ")\nEXTERN(" lines)
file(WRITE "${OUT}" "EXTERN(${lines})\n")
