// Writes the pages of sample_reports() into a folder: write_sample_pages FOLDER.
#include <cstdio>
#include <fstream>

#include "ridge/proof/report/report.h"
#include "tests/tune/sample_reports.h"

int main(int count, char** words) {
  if (count != 2) {
    std::fputs("usage: write_sample_pages FOLDER\n", stderr);
    return 2;
  }
  for (const ridge::test::SampleReport& report : ridge::test::sample_reports()) {
    const std::string path = std::string(words[1]) + "/" + report.name + ".html";
    std::ofstream file(path);
    file << ridge::optimize_html(report.summary, report.trials);
    if (!file.flush()) {
      std::fprintf(stderr, "write_sample_pages: cannot write '%s'\n", path.c_str());
      return 1;
    }
  }
  return 0;
}
