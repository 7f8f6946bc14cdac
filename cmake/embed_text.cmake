# Writes a C++ file that holds the texts of FILES (by '|'), for the function NAME of HEADER:
#   cmake -DFILES=a.py|b.py -DOUT=shim_text.cc -DNAME=shim_files -DHEADER=ridge/attach/shim.h
#         -DNAMESPACE=ridge::attach -P embed_text.cmake
# With -DROOT=DIR a text is named by its path from there, else by the name of its file.
# A literal is at most 4 KiB, which every compiler takes; adjacent ones are one text.
string(REPLACE "|" ";" files "${FILES}")
set(rows "")
foreach(path IN LISTS files)
  get_filename_component(name "${path}" NAME)
  if(ROOT)
    file(RELATIVE_PATH name "${ROOT}" "${path}")
  endif()
  file(READ "${path}" text)
  string(LENGTH "${text}" length)
  set(literals "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 4096 piece)
    string(APPEND literals "\n     R\"shim_text(${piece})shim_text\"")
    math(EXPR at "${at} + 4096")
  endwhile()
  string(APPEND rows "    {\"${name}\",${literals}},\n")
endforeach()
file(WRITE "${OUT}" "// Made of other files by cmake/embed_text.cmake.
#include \"${HEADER}\"

namespace ${NAMESPACE} {

const std::vector<std::pair<std::string_view, std::string_view>>& ${NAME}() {
  static const std::vector<std::pair<std::string_view, std::string_view>> files = {
${rows}  };
  return files;
}

}  // namespace ${NAMESPACE}
")
