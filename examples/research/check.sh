# Every quotation of REPORT.md stands in its source, word for word: > words (file)
[ -s REPORT.md ] || { echo "there is no REPORT.md"; exit 1; }
grep '^> ' REPORT.md > quotations.txt || { echo "REPORT.md quotes no source"; exit 1; }
wrong=0
while IFS= read -r line; do
  words=$(printf '%s' "$line" | sed 's/^> \(.*\) (\([^()]*\))$/\1/')
  file=$(printf '%s' "$line" | sed 's/^> \(.*\) (\([^()]*\))$/\2/')
  grep -qF -- "$words" "sources/$file" 2>/dev/null || { echo "not in its source: $line"; wrong=1; }
done < quotations.txt
exit $wrong
