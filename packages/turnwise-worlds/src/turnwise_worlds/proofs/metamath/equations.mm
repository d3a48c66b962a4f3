$( Equational logic over the operations of `proofs.syntax`: reflexivity, symmetry, transitivity and congruence, and
   nothing else. Elements and laws are those of a theorem: `export` adds them. set.mm has no place for them, because there a
   law for all classes is inconsistent: a class operation has one value for all proper classes. $)
  $c ( ) = |- term * ++ :: inv rev e nil $.
  $v x y z u $.
  tx $f term x $.
  ty $f term y $.
  tz $f term z $.
  tu $f term u $.
  te $a term e $.
  tnil $a term nil $.
  tinv $a term ( inv x ) $.
  trev $a term ( rev x ) $.
  tmul $a term ( x * y ) $.
  tapp $a term ( x ++ y ) $.
  tcons $a term ( x :: y ) $.
  eqid $a |- x = x $.
  ${
    eqcom.1 $e |- x = y $.
    eqcom $a |- y = x $.
  $}
  ${
    eqtr.1 $e |- x = y $.
    eqtr.2 $e |- y = z $.
    eqtr $a |- x = z $.
  $}
  ${
    eqinv.1 $e |- x = y $.
    eqinv $a |- ( inv x ) = ( inv y ) $.
  $}
  ${
    eqrev.1 $e |- x = y $.
    eqrev $a |- ( rev x ) = ( rev y ) $.
  $}
  ${
    eqmul.1 $e |- x = y $.
    eqmul.2 $e |- z = u $.
    eqmul $a |- ( x * z ) = ( y * u ) $.
  $}
  ${
    eqapp.1 $e |- x = y $.
    eqapp.2 $e |- z = u $.
    eqapp $a |- ( x ++ z ) = ( y ++ u ) $.
  $}
  ${
    eqcons.1 $e |- x = y $.
    eqcons.2 $e |- z = u $.
    eqcons $a |- ( x :: z ) = ( y :: u ) $.
  $}
