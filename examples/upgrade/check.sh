# Every package that is named, or every one there is, must want parser 2.
for package in "${@:-api web docs}"; do
  for name in $package; do
    grep -qx "parser==2.0" "packages/$name/requirements.txt" || { echo "$name does not want parser 2.0"; exit 1; }
  done
done
