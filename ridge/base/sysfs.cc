#include "ridge/base/sysfs.h"

#include <fstream>

namespace ridge {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace ridge
