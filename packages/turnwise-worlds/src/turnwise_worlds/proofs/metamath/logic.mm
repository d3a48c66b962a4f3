$( An excerpt of set.mm, version of 28-Dec-2020, which is in the public domain (CC0). Comments are left out. Made by

     metamath 'read /usr/share/metamath/databases/set.mm' \
       'write source logic.mm /extract id,simpr,adantr,ex,mpd,jca,simpld,simprd,orcd,olcd,mpjaodan,falim,syl,peirce,trud' exit

   which brings the theorems that the exporter uses, and all that they rest on: ax-mp, ax-1, ax-2, ax-3 and five
   definitions. $)
  $c ( $.
  $c ) $.
  $c -> $.
  $c -. $.
  $c wff $.
  $c |- $.
  $v ph $.
  $v ps $.
  $v ch $.
  $v th $.
  $v ta $.
  $v et $.
  $v ze $.
  $v si $.
  $v rh $.
  $v mu $.
  $v la $.
  $v ka $.
  wph $f wff ph $.
  wps $f wff ps $.
  wch $f wff ch $.
  wth $f wff th $.
  wta $f wff ta $.
  wet $f wff et $.
  wze $f wff ze $.
  wsi $f wff si $.
  wrh $f wff rh $.
  wmu $f wff mu $.
  wla $f wff la $.
  wka $f wff ka $.
  wn $a wff -. ph $.
  wi $a wff ( ph -> ps ) $.
  ${
    min $e |- ph $.
    maj $e |- ( ph -> ps ) $.
    ax-mp $a |- ps $.
  $}
  ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
  ax-2 $a |- ( ( ph -> ( ps -> ch ) ) -> ( ( ph -> ps ) -> ( ph -> ch ) ) ) $.
  ax-3 $a |- ( ( -. ph -> -. ps ) -> ( ps -> ph ) ) $.
  ${
    mp2.1 $e |- ph $.
    mp2.2 $e |- ps $.
    mp2.3 $e |- ( ph -> ( ps -> ch ) ) $.
    mp2 $p |- ch $=
      ( wi ax-mp ) BCEABCGDFHH $.
  $}
  ${
    a1i.1 $e |- ph $.
    a1i $p |- ( ps -> ph ) $=
      ( wi ax-1 ax-mp ) ABADCABEF $.
  $}
  ${
    a2i.1 $e |- ( ph -> ( ps -> ch ) ) $.
    a2i $p |- ( ( ph -> ps ) -> ( ph -> ch ) ) $=
      ( wi ax-2 ax-mp ) ABCEEABEACEEDABCFG $.
  $}
  ${
    mpd.1 $e |- ( ph -> ps ) $.
    mpd.2 $e |- ( ph -> ( ps -> ch ) ) $.
    mpd $p |- ( ph -> ch ) $=
      ( wi a2i ax-mp ) ABFACFDABCEGH $.
  $}
  ${
    imim2i.1 $e |- ( ph -> ps ) $.
    imim2i $p |- ( ( ch -> ph ) -> ( ch -> ps ) ) $=
      ( wi a1i a2i ) CABABECDFG $.
  $}
  ${
    syl.1 $e |- ( ph -> ps ) $.
    syl.2 $e |- ( ps -> ch ) $.
    syl $p |- ( ph -> ch ) $=
      ( wi a1i mpd ) ABCDBCFAEGH $.
  $}
  id $p |- ( ph -> ph ) $=
    ( wi ax-1 mpd ) AAABZAAACAECD $.
  idd $p |- ( ph -> ( ps -> ps ) ) $=
    ( wi id a1i ) BBCABDE $.
  ${
    a1d.1 $e |- ( ph -> ps ) $.
    a1d $p |- ( ph -> ( ch -> ps ) ) $=
      ( wi ax-1 syl ) ABCBEDBCFG $.
  $}
  ${
    a2d.1 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
    a2d $p |- ( ph -> ( ( ps -> ch ) -> ( ps -> th ) ) ) $=
      ( wi ax-2 syl ) ABCDFFBCFBDFFEBCDGH $.
  $}
  ${
    sylcom.1 $e |- ( ph -> ( ps -> ch ) ) $.
    sylcom.2 $e |- ( ps -> ( ch -> th ) ) $.
    sylcom $p |- ( ph -> ( ps -> th ) ) $=
      ( wi a2i syl ) ABCGBDGEBCDFHI $.
  $}
  ${
    syl5com.1 $e |- ( ph -> ps ) $.
    syl5com.2 $e |- ( ch -> ( ps -> th ) ) $.
    syl5com $p |- ( ph -> ( ch -> th ) ) $=
      ( a1d sylcom ) ACBDABCEGFH $.
  $}
  ${
    com12.1 $e |- ( ph -> ( ps -> ch ) ) $.
    com12 $p |- ( ps -> ( ph -> ch ) ) $=
      ( id syl5com ) BBACBEDF $.
  $}
  ${
    syl5.1 $e |- ( ph -> ps ) $.
    syl5.2 $e |- ( ch -> ( ps -> th ) ) $.
    syl5 $p |- ( ch -> ( ph -> th ) ) $=
      ( syl5com com12 ) ACDABCDEFGH $.
  $}
  ${
    syl6.1 $e |- ( ph -> ( ps -> ch ) ) $.
    syl6.2 $e |- ( ch -> th ) $.
    syl6 $p |- ( ph -> ( ps -> th ) ) $=
      ( wi a1i sylcom ) ABCDECDGBFHI $.
  $}
  ${
    syl2im.1 $e |- ( ph -> ps ) $.
    syl2im.2 $e |- ( ch -> th ) $.
    syl2im.3 $e |- ( ps -> ( th -> ta ) ) $.
    syl2im $p |- ( ph -> ( ch -> ta ) ) $=
      ( wi syl5 syl ) ABCEIFCDBEGHJK $.
  $}
  pm2.27 $p |- ( ph -> ( ( ph -> ps ) -> ps ) ) $=
    ( wi id com12 ) ABCZABFDE $.
  ${
    mpdd.1 $e |- ( ph -> ( ps -> ch ) ) $.
    mpdd.2 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
    mpdd $p |- ( ph -> ( ps -> th ) ) $=
      ( wi a2d mpd ) ABCGBDGEABCDFHI $.
  $}
  ${
    syld.1 $e |- ( ph -> ( ps -> ch ) ) $.
    syld.2 $e |- ( ph -> ( ch -> th ) ) $.
    syld $p |- ( ph -> ( ps -> th ) ) $=
      ( wi a1d mpdd ) ABCDEACDGBFHI $.
  $}
  ${
    pm2.43i.1 $e |- ( ph -> ( ph -> ps ) ) $.
    pm2.43i $p |- ( ph -> ps ) $=
      ( id mpd ) AABADCE $.
  $}
  ${
    sylc.1 $e |- ( ph -> ps ) $.
    sylc.2 $e |- ( ph -> ch ) $.
    sylc.3 $e |- ( ps -> ( ch -> th ) ) $.
    sylc $p |- ( ph -> th ) $=
      ( syl2im pm2.43i ) ADABACDEFGHI $.
  $}
  ${
    syl6c.1 $e |- ( ph -> ( ps -> ch ) ) $.
    syl6c.2 $e |- ( ph -> ( ps -> th ) ) $.
    syl6c.3 $e |- ( ch -> ( th -> ta ) ) $.
    syl6c $p |- ( ph -> ( ps -> ta ) ) $=
      ( wi syl6 mpdd ) ABDEGABCDEIFHJK $.
  $}
  con4 $p |- ( ( -. ph -> -. ps ) -> ( ps -> ph ) ) $=
    ( ax-3 ) ABC $.
  ${
    con4d.1 $e |- ( ph -> ( -. ps -> -. ch ) ) $.
    con4d $p |- ( ph -> ( ch -> ps ) ) $=
      ( wn wi con4 syl ) ABECEFCBFDBCGH $.
  $}
  ${
    pm2.21d.1 $e |- ( ph -> -. ps ) $.
    pm2.21d $p |- ( ph -> ( ps -> ch ) ) $=
      ( wn a1d con4d ) ACBABECEDFG $.
  $}
  pm2.21 $p |- ( -. ph -> ( ph -> ps ) ) $=
    ( wn id pm2.21d ) ACZABFDE $.
  pm2.24 $p |- ( ph -> ( -. ph -> ps ) ) $=
    ( wn pm2.21 com12 ) ACABABDE $.
  pm2.18 $p |- ( ( -. ph -> ph ) -> ph ) $=
    ( wn wi pm2.21 a2i con4d pm2.43i ) ABZACZAIAIHAIBZAJDEFG $.
  ${
    pm2.18d.1 $e |- ( ph -> ( -. ps -> ps ) ) $.
    pm2.18d $p |- ( ph -> ps ) $=
      ( wn wi pm2.18 syl ) ABDBEBCBFG $.
  $}
  notnot2 $p |- ( -. -. ph -> ph ) $=
    ( wn pm2.21 pm2.18d ) ABZBAEACD $.
  ${
    con2d.1 $e |- ( ph -> ( ps -> -. ch ) ) $.
    con2d $p |- ( ph -> ( ch -> -. ps ) ) $=
      ( wn notnot2 syl5 con4d ) ABEZCIEBACEBFDGH $.
  $}
  ${
    mt2d.1 $e |- ( ph -> ch ) $.
    mt2d.2 $e |- ( ph -> ( ps -> -. ch ) ) $.
    mt2d $p |- ( ph -> -. ps ) $=
      ( wn con2d mpd ) ACBFDABCEGH $.
  $}
  ${
    nsyl3.1 $e |- ( ph -> -. ps ) $.
    nsyl3.2 $e |- ( ch -> ps ) $.
    nsyl3 $p |- ( ch -> -. ph ) $=
      ( wn wi a1i mt2d ) CABEABFGCDHI $.
  $}
  ${
    con2i.a $e |- ( ph -> -. ps ) $.
    con2i $p |- ( ps -> -. ph ) $=
      ( id nsyl3 ) ABBCBDE $.
  $}
  ${
    nsyl.1 $e |- ( ph -> -. ps ) $.
    nsyl.2 $e |- ( ch -> ps ) $.
    nsyl $p |- ( ph -> -. ch ) $=
      ( nsyl3 con2i ) CAABCDEFG $.
  $}
  notnot1 $p |- ( ph -> -. -. ph ) $=
    ( wn id con2i ) ABZAECD $.
  ${
    negbi.1 $e |- ph $.
    notnoti $p |- -. -. ph $=
      ( wn notnot1 ax-mp ) AACCBADE $.
  $}
  ${
    con1d.1 $e |- ( ph -> ( -. ps -> ch ) ) $.
    con1d $p |- ( ph -> ( -. ch -> ps ) ) $=
      ( wn notnot1 syl6 con4d ) ABCEZABECIEDCFGH $.
  $}
  ${
    mt3d.1 $e |- ( ph -> -. ch ) $.
    mt3d.2 $e |- ( ph -> ( -. ps -> ch ) ) $.
    mt3d $p |- ( ph -> ps ) $=
      ( wn con1d mpd ) ACFBDABCEGH $.
  $}
  ${
    nsyl2.1 $e |- ( ph -> -. ps ) $.
    nsyl2.2 $e |- ( -. ch -> ps ) $.
    nsyl2 $p |- ( ph -> ch ) $=
      ( wn wi a1i mt3d ) ACBDCFBGAEHI $.
  $}
  ${
    con1i.1 $e |- ( -. ph -> ps ) $.
    con1i $p |- ( -. ps -> ph ) $=
      ( wn id nsyl2 ) BDZBAGECF $.
  $}
  ${
    con4i.1 $e |- ( -. ph -> -. ps ) $.
    con4i $p |- ( ps -> ph ) $=
      ( wn notnot1 nsyl2 ) BBDABECF $.
  $}
  ${
    pm2.21i.1 $e |- -. ph $.
    pm2.21i $p |- ( ph -> ps ) $=
      ( wn a1i con4i ) BAADBDCEF $.
  $}
  ${
    con3d.1 $e |- ( ph -> ( ps -> ch ) ) $.
    con3d $p |- ( ph -> ( -. ch -> -. ps ) ) $=
      ( wn notnot2 syl5 con1d ) ABEZCIEBACBFDGH $.
  $}
  ${
    con3i.a $e |- ( ph -> ps ) $.
    con3i $p |- ( -. ps -> -. ph ) $=
      ( wn id nsyl ) BDZBAGECF $.
  $}
  ${
    con3rr3.1 $e |- ( ph -> ( ps -> ch ) ) $.
    con3rr3 $p |- ( -. ch -> ( ph -> -. ps ) ) $=
      ( wn con3d com12 ) ACEBEABCDFG $.
  $}
  pm3.2im $p |- ( ph -> ( ps -> -. ( ph -> -. ps ) ) ) $=
    ( wn wi pm2.27 con2d ) AABCZDBAGEF $.
  ${
    impi.1 $e |- ( ph -> ( ps -> ch ) ) $.
    impi $p |- ( -. ( ph -> -. ps ) -> ch ) $=
      ( wn wi con3rr3 con1i ) CABEFABCDGH $.
  $}
  ${
    expi.1 $e |- ( -. ( ph -> -. ps ) -> ch ) $.
    expi $p |- ( ph -> ( ps -> ch ) ) $=
      ( wn wi pm3.2im syl6 ) ABABEFECABGDH $.
  $}
  simprim $p |- ( -. ( ph -> -. ps ) -> ps ) $=
    ( idd impi ) ABBABCD $.
  simplim $p |- ( -. ( ph -> ps ) -> ph ) $=
    ( wi pm2.21 con1i ) AABCABDE $.
  ${
    pm2.61d.1 $e |- ( ph -> ( ps -> ch ) ) $.
    pm2.61d.2 $e |- ( ph -> ( -. ps -> ch ) ) $.
    pm2.61d $p |- ( ph -> ch ) $=
      ( wn con1d syld pm2.18d ) ACACFBCABCEGDHI $.
  $}
  ${
    pm2.61d1.1 $e |- ( ph -> ( ps -> ch ) ) $.
    pm2.61d1.2 $e |- ( -. ps -> ch ) $.
    pm2.61d1 $p |- ( ph -> ch ) $=
      ( wn wi a1i pm2.61d ) ABCDBFCGAEHI $.
  $}
  ${
    pm2.61d2.1 $e |- ( ph -> ( -. ps -> ch ) ) $.
    pm2.61d2.2 $e |- ( ps -> ch ) $.
    pm2.61d2 $p |- ( ph -> ch ) $=
      ( wi a1i pm2.61d ) ABCBCFAEGDH $.
  $}
  ${
    ja.1 $e |- ( -. ph -> ch ) $.
    ja.2 $e |- ( ps -> ch ) $.
    ja $p |- ( ( ph -> ps ) -> ch ) $=
      ( wi imim2i pm2.61d1 ) ABFACBCAEGDH $.
  $}
  ${
    pm2.61i.1 $e |- ( ph -> ps ) $.
    pm2.61i.2 $e |- ( -. ph -> ps ) $.
    pm2.61i $p |- ps $=
      ( wi id ja ax-mp ) AAEBAFAABDCGH $.
  $}
  ${
    pm2.65i.1 $e |- ( ph -> ps ) $.
    pm2.65i.2 $e |- ( ph -> -. ps ) $.
    pm2.65i $p |- -. ph $=
      ( wn con2i con3i pm2.61i ) BAEABDFABCGH $.
  $}
  ${
    mto.1 $e |- -. ps $.
    mto.2 $e |- ( ph -> ps ) $.
    mto $p |- -. ph $=
      ( wn a1i pm2.65i ) ABDBEACFG $.
  $}
  peirce $p |- ( ( ( ph -> ps ) -> ph ) -> ph ) $=
    ( wi simplim id ja ) ABCAAABDAEF $.
  $c <-> $.
  wb $a wff ( ph <-> ps ) $.
  df-bi $a |- -. ( ( ( ph <-> ps ) -> -. ( ( ph -> ps ) -> -. ( ps -> ph ) ) )
        -> -. ( -. ( ( ph -> ps ) -> -. ( ps -> ph ) ) -> ( ph <-> ps ) ) ) $.
  impbi $p |- ( ( ph -> ps ) -> ( ( ps -> ph ) -> ( ph <-> ps ) ) ) $=
    ( wi wb wn df-bi simprim ax-mp expi ) ABCZBACZABDZLJKECEZCZMLCZECEOABFNOGHI
    $.
  ${
    impbii.1 $e |- ( ph -> ps ) $.
    impbii.2 $e |- ( ps -> ph ) $.
    impbii $p |- ( ph <-> ps ) $=
      ( wi wb impbi mp2 ) ABEBAEABFCDABGH $.
  $}
  ${
    impbidd.1 $e |- ( ph -> ( ps -> ( ch -> th ) ) ) $.
    impbidd.2 $e |- ( ph -> ( ps -> ( th -> ch ) ) ) $.
    impbidd $p |- ( ph -> ( ps -> ( ch <-> th ) ) ) $=
      ( wi wb impbi syl6c ) ABCDGDCGCDHEFCDIJ $.
  $}
  ${
    impbid21d.1 $e |- ( ps -> ( ch -> th ) ) $.
    impbid21d.2 $e |- ( ph -> ( th -> ch ) ) $.
    impbid21d $p |- ( ph -> ( ps -> ( ch <-> th ) ) ) $=
      ( wi a1i a1d impbidd ) ABCDBCDGGAEHADCGBFIJ $.
  $}
  ${
    impbid.1 $e |- ( ph -> ( ps -> ch ) ) $.
    impbid.2 $e |- ( ph -> ( ch -> ps ) ) $.
    impbid $p |- ( ph -> ( ps <-> ch ) ) $=
      ( wb impbid21d pm2.43i ) ABCFAABCDEGH $.
  $}
  dfbi1 $p |- ( ( ph <-> ps ) <-> -. ( ( ph -> ps ) -> -. ( ps -> ph ) ) ) $=
    ( wb wi wn df-bi simplim ax-mp impbi impi impbii ) ABCZABDZBADZEDEZLODZOLDE
    ZDEPABFPQGHMNLABIJK $.
  biimp $p |- ( ( ph <-> ps ) -> ( ph -> ps ) ) $=
    ( wb wi wn df-bi simplim ax-mp syl ) ABCZABDZBADEZDEZKJMDZMJDEZDENABFNOGHKL
    GI $.
  ${
    biimpi.1 $e |- ( ph <-> ps ) $.
    biimpi $p |- ( ph -> ps ) $=
      ( wb wi biimp ax-mp ) ABDABECABFG $.
  $}
  ${
    sylbi.1 $e |- ( ph <-> ps ) $.
    sylbi.2 $e |- ( ps -> ch ) $.
    sylbi $p |- ( ph -> ch ) $=
      ( biimpi syl ) ABCABDFEG $.
  $}
  ${
    sylib.1 $e |- ( ph -> ps ) $.
    sylib.2 $e |- ( ps <-> ch ) $.
    sylib $p |- ( ph -> ch ) $=
      ( biimpi syl ) ABCDBCEFG $.
  $}
  biimpr $p |- ( ( ph <-> ps ) -> ( ps -> ph ) ) $=
    ( wb wi wn dfbi1 simprim sylbi ) ABCABDZBADZEDEJABFIJGH $.
  bicom1 $p |- ( ( ph <-> ps ) -> ( ps <-> ph ) ) $=
    ( wb biimpr biimp impbid ) ABCBAABDABEF $.
  ${
    bicomi.1 $e |- ( ph <-> ps ) $.
    bicomi $p |- ( ps <-> ph ) $=
      ( wb bicom1 ax-mp ) ABDBADCABEF $.
  $}
  ${
    biimpri.1 $e |- ( ph <-> ps ) $.
    biimpri $p |- ( ps -> ph ) $=
      ( bicomi biimpi ) BAABCDE $.
  $}
  ${
    mpbir.min $e |- ps $.
    mpbir.maj $e |- ( ph <-> ps ) $.
    mpbir $p |- ph $=
      ( biimpri ax-mp ) BACABDEF $.
  $}
  ${
    sylbir.1 $e |- ( ps <-> ph ) $.
    sylbir.2 $e |- ( ps -> ch ) $.
    sylbir $p |- ( ph -> ch ) $=
      ( biimpri syl ) ABCBADFEG $.
  $}
  ${
    mtbi.1 $e |- -. ph $.
    mtbi.2 $e |- ( ph <-> ps ) $.
    mtbi $p |- -. ps $=
      ( biimpri mto ) BACABDEF $.
  $}
  ${
    mtbir.1 $e |- -. ps $.
    mtbir.2 $e |- ( ph <-> ps ) $.
    mtbir $p |- -. ph $=
      ( bicomi mtbi ) BACABDEF $.
  $}
  $c \/ $.
  $c /\ $.
  wo $a wff ( ph \/ ps ) $.
  wa $a wff ( ph /\ ps ) $.
  df-or $a |- ( ( ph \/ ps ) <-> ( -. ph -> ps ) ) $.
  df-an $a |- ( ( ph /\ ps ) <-> -. ( ph -> -. ps ) ) $.
  pm2.53 $p |- ( ( ph \/ ps ) -> ( -. ph -> ps ) ) $=
    ( wo wn wi df-or biimpi ) ABCADBEABFG $.
  pm2.54 $p |- ( ( -. ph -> ps ) -> ( ph \/ ps ) ) $=
    ( wo wn wi df-or biimpri ) ABCADBEABFG $.
  ${
    orrd.1 $e |- ( ph -> ( -. ps -> ch ) ) $.
    orrd $p |- ( ph -> ( ps \/ ch ) ) $=
      ( wn wi wo pm2.54 syl ) ABECFBCGDBCHI $.
  $}
  ${
    jaoi.1 $e |- ( ph -> ps ) $.
    jaoi.2 $e |- ( ch -> ps ) $.
    jaoi $p |- ( ( ph \/ ch ) -> ps ) $=
      ( wo wn pm2.53 syl6 pm2.61d2 ) ACFZABKAGCBACHEIDJ $.
  $}
  ${
    jaod.1 $e |- ( ph -> ( ps -> ch ) ) $.
    jaod.2 $e |- ( ph -> ( th -> ch ) ) $.
    jaod $p |- ( ph -> ( ( ps \/ th ) -> ch ) ) $=
      ( wo wi com12 jaoi ) BDGACBACHDABCEIADCFIJI $.
  $}
  olc $p |- ( ph -> ( ps \/ ph ) ) $=
    ( wn ax-1 orrd ) ABAABCDE $.
  orc $p |- ( ph -> ( ph \/ ps ) ) $=
    ( pm2.24 orrd ) AABABCD $.
  pm1.4 $p |- ( ( ph \/ ps ) -> ( ps \/ ph ) ) $=
    ( wo olc orc jaoi ) ABACBABDBAEF $.
  orcom $p |- ( ( ph \/ ps ) <-> ( ps \/ ph ) ) $=
    ( wo pm1.4 impbii ) ABCBACABDBADE $.
  ${
    orcomd.1 $e |- ( ph -> ( ps \/ ch ) ) $.
    orcomd $p |- ( ph -> ( ch \/ ps ) ) $=
      ( wo orcom sylib ) ABCECBEDBCFG $.
  $}
  ${
    orcd.1 $e |- ( ph -> ps ) $.
    orcd $p |- ( ph -> ( ps \/ ch ) ) $=
      ( wo orc syl ) ABBCEDBCFG $.
    olcd $p |- ( ph -> ( ch \/ ps ) ) $=
      ( orcd orcomd ) ABCABCDEF $.
  $}
  ${
    imp.1 $e |- ( ph -> ( ps -> ch ) ) $.
    imp $p |- ( ( ph /\ ps ) -> ch ) $=
      ( wa wn wi df-an impi sylbi ) ABEABFGFCABHABCDIJ $.
  $}
  ${
    ex.1 $e |- ( ( ph /\ ps ) -> ch ) $.
    ex $p |- ( ph -> ( ps -> ch ) ) $=
      ( wn wi wa df-an sylbir expi ) ABCABEFEABGCABHDIJ $.
  $}
  pm3.2 $p |- ( ph -> ( ps -> ( ph /\ ps ) ) ) $=
    ( wa id ex ) ABABCZFDE $.
  pm3.21 $p |- ( ph -> ( ps -> ( ps /\ ph ) ) ) $=
    ( wa pm3.2 com12 ) BABACBADE $.
  pm3.22 $p |- ( ( ph /\ ps ) -> ( ps /\ ph ) ) $=
    ( wa pm3.21 imp ) ABBACABDE $.
  ancom $p |- ( ( ph /\ ps ) <-> ( ps /\ ph ) ) $=
    ( wa pm3.22 impbii ) ABCBACABDBADE $.
  ${
    ancomd.1 $e |- ( ph -> ( ps /\ ch ) ) $.
    ancomd $p |- ( ph -> ( ch /\ ps ) ) $=
      ( wa ancom sylib ) ABCECBEDBCFG $.
  $}
  simpl $p |- ( ( ph /\ ps ) -> ph ) $=
    ( ax-1 imp ) ABAABCD $.
  ${
    simpld.1 $e |- ( ph -> ( ps /\ ch ) ) $.
    simpld $p |- ( ph -> ps ) $=
      ( wa simpl syl ) ABCEBDBCFG $.
  $}
  simpr $p |- ( ( ph /\ ps ) -> ps ) $=
    ( idd imp ) ABBABCD $.
  ${
    simprd.1 $e |- ( ph -> ( ps /\ ch ) ) $.
    simprd $p |- ( ph -> ch ) $=
      ( ancomd simpld ) ACBABCDEF $.
  $}
  ${
    adantr.1 $e |- ( ph -> ps ) $.
    adantr $p |- ( ( ph /\ ch ) -> ps ) $=
      ( a1d imp ) ACBABCDEF $.
  $}
  ${
    jca.1 $e |- ( ph -> ps ) $.
    jca.2 $e |- ( ph -> ch ) $.
    jca $p |- ( ph -> ( ps /\ ch ) ) $=
      ( wa pm3.2 sylc ) ABCBCFDEBCGH $.
  $}
  ${
    syl2anc.1 $e |- ( ph -> ps ) $.
    syl2anc.2 $e |- ( ph -> ch ) $.
    syl2anc.3 $e |- ( ( ps /\ ch ) -> th ) $.
    syl2anc $p |- ( ph -> th ) $=
      ( ex sylc ) ABCDEFBCDGHI $.
  $}
  ${
    mpdan.1 $e |- ( ph -> ps ) $.
    mpdan.2 $e |- ( ( ph /\ ps ) -> ch ) $.
    mpdan $p |- ( ph -> ch ) $=
      ( id syl2anc ) AABCAFDEG $.
  $}
  ${
    jaodan.1 $e |- ( ( ph /\ ps ) -> ch ) $.
    jaodan.2 $e |- ( ( ph /\ th ) -> ch ) $.
    jaodan $p |- ( ( ph /\ ( ps \/ th ) ) -> ch ) $=
      ( wo ex jaod imp ) ABDGCABCDABCEHADCFHIJ $.
    jaodan.3 $e |- ( ph -> ( ps \/ th ) ) $.
    mpjaodan $p |- ( ph -> ch ) $=
      ( wo jaodan mpdan ) ABDHCGABCDEFIJ $.
  $}
  $c A. $.
  $c setvar $.
  ${
    $v x $.
    vx.wal $f setvar x $.
    wal $a wff A. x ph $.
  $}
  $c class $.
  ${
    $v x $.
    vx.cv $f setvar x $.
    cv $a class x $.
  $}
  $c = $.
  ${
    $v A $.
    $v B $.
    cA.wceq $f class A $.
    cB.wceq $f class B $.
    wceq $a wff A = B $.
  $}
  $c T. $.
  wtru $a wff T. $.
  ${
    $v x $.
    $v y $.
    vx.tru $f setvar x $.
    vy.tru $f setvar y $.
    df-tru $a |- ( T. <-> ( A. x x = x -> A. x x = x ) ) $.
    tru $p |- T. $=
      ( vx.tru wtru cv wceq wal wi id df-tru mpbir ) BACZJDAEZKFKGAHI $.
  $}
  $c F. $.
  wfal $a wff F. $.
  df-fal $a |- ( F. <-> -. T. ) $.
  fal $p |- -. F. $=
    ( wfal wtru wn tru notnoti df-fal mtbir ) ABCBDEFG $.
  ${
    trud.1 $e |- ( T. -> ph ) $.
    trud $p |- ph $=
      ( wtru tru ax-mp ) CADBE $.
  $}
  falim $p |- ( F. -> ph ) $=
    ( wfal fal pm2.21i ) BACD $.
  $c & => -/\ \/_ , if- hadd cadd E. F/ [ / ] e. E! E* { | } F/_ =/= e/ _V
    CondEq [. ]. [_ ]_ \ u. i^i C_ C. /_\ (/) if ~P <. >. U. |^| U_ |^|_ Disj_
    |-> Tr _E _I Po Or Fr Se We X. `' dom ran |` " o. Rel Pred Ord On Lim suc
    iota : Fun Fn --> -1-1-> -onto-> -1-1-onto-> ` Isom iota_ oF oR [C.] _om
    1st 2nd supp tpos curry uncurry Undef wrecs Smo recs rec seqom 1o 2o 3o 4o
    +o .o ^o Er /. ^m ^pm X_ ~~ ~<_ ~< Fin finSupp fi sup inf OrdIso har ~<_*
    CNF TC R1 rank card aleph cf AC_ CHOICE +c Fin1a Fin2 Fin3 Fin4 Fin5 Fin6
    Fin7 GCH InaccW Inacc WUni wUniCl Tarski Univ tarskiMap N. +N .N <N +pQ .pQ
    <pQ ~Q Q. 1Q /Q +Q .Q *Q <Q P. 1P +P. .P. <P ~R R. 0R 1R -1R +R .R <R <RR
    CC RR 0 1 _i + x. <_ +oo -oo RR* < - -u NN 2 3 4 5 6 7 8 9 10 NN0 ZZ ; ZZ>=
    QQ RR+ -e +e *e (,) (,] [,) [,] ... ..^ |_ |^ mod == seq ^ ! _C # Word
    lastS ++ <" "> substr splice reverse repeatS cyclShift t+ t* ^r t*rec shift
    sgn Re Im * sqrt abs +- limsup limsupOLD ~~> ~~>r O(1) <_O(1) sum_ prod_
    FallFac RiseFac BernPoly exp _e sin cos tan _pi _piOLD || bits sadd smul
    gcd lcm _lcm lcmOLD _lcmOLD Prime numer denom odZ odZOLD phi pCnt Z[i] AP
    MonoAP PolyAP Ramsey RamseyOLD #p Struct ndx sSet Slot Base |`s +g .r *r
    Scalar .s .i TopSet le oc dist UnifSet Hom comp |`t TopOpen topGen Xt_ 0g
    gsum Xs_ ^s ordTop RR*s "s "sOLD /s qTop Xs. Moore mrCls mrInd ACS Cat Id
    Homf comf oppCat Mono Epi Sect Inv Iso ~=c C_cat |`cat Subcat Func idFunc
    o.func |`f Full Faith Nat FuncCat InitO TermO ZeroO domA codA Arrow HomA
    IdA compA SetCat CatCat ExtStrCat Xc. 1stF 2ndF pairF evalF curryF uncurryF
    DiagFunc HomF Yon Preset Dirset Poset lt lub glb join meet Toset 1. 0. Lat
    CLat ODual toInc DLat PosetRel TosetRel DirRel tail +f Mgm SGrp Mnd MndOLD
    MndHom SubMnd freeMnd varFMnd Grp invg -g .g ~QG SubGrp NrmSGrp GrpHom
    GrpIso ~=g GrpAct Cntr Cntz oppG SymGrp pmTrsp pmSgn pmEven od odOLD gEx
    gExOLD pGrp pGrpOLD pSyl LSSum proj1 ~FG freeGrp varFGrp CMnd Abel CycGrp
    DProd dProj mulGrp 1r SRing Ring CRing oppR ||r Unit Irred invr /r RingHom
    RingIso ~=r DivRing Field SubRing RingSpan AbsVal *Ring *rf LMod .sf LSubSp
    LSpan LMHom LMIso ~=m LBasis LVec subringAlg ringLMod RSpan LIdeal 2Ideal
    LPIdeal LPIR NzRing RLReg Domn IDomn PID AssAlg AlgSpan algSc mPwSer mVar
    mPoly <bag ordPwSer evalSub eval mHomP mPSDer selectVars AlgInd PwSer1 var1
    Poly1 coe1 toPoly1 evalSub1 eval1 PsMet *Met Met ball fBas filGen MetOpen
    metUnif CCfld ZZring ZRHom ZMod chr Z/nZ RRfld PreHil .if ocv CSubSp toHL
    proj Hil OBasis (+)m freeLMod unitVec LIndF LIndS maMul Mat DMat ScMat
    maVecMul matRRep matRepV subMat maDet maAdju minMatR1 ConstPolyMat
    matToPolyMat cPolyMatToMat decompPMat pMatToMatPoly CharPlyMat Top TopOn
    TopSp TopBases int cls Clsd nei limPt Perf Cn CnP ~~>t Kol2 Fre Haus Reg
    Nrm CNrm PNrm Comp Con 1stc 2ndc Locally N-Locally Ref PtFin LocFin kGen tX
    ^ko KQ Homeo ~= Fil UFil UFL FilMap fLimf fLim fClus fClusf CnExt TopMnd
    TopGrp tsums TopRing TopDRing TopMod TopVec UnifOn unifTop UnifSt UnifSp
    toUnifSp uCn CauFilU CUnifSp *MetSp MetSp toMetSp norm NrmGrp toNrmGrp
    NrmRing NrmMod NrmVec normOp normOpOLDOLD NGHom NMHom NGHomOLD II -cn->
    Htpy PHtpy ~=ph *p Om1 OmN pi1 piN CMod CVec CPreHil toCHil CauFil Cau CMet
    CMetSp Ban CHil RR^ EEhil vol* vol*OLD vol MblFn L^1 S.1 S.2 S. S_ _d 0p
    limCC _D Dn C^n mDeg deg1 Monic1p Unic1p quot1p rem1p idlGen1p idlGen1pOLD
    Poly Xp coeff deg quot AA Tayl Ana ~~>u log ^c logb arcsin arccos arctan
    area gamma zeta _G log_G 1/_G theta Lam psi ppi mmu sigma DChr /L TarskiG
    Itv LineG TarskiGC TarskiGB TarskiGCB TarskiGE TarskiGDim>= cgrG Ismt leG
    hlG pInvG raG perpG hpG midG lInvG cgrA inA leA eqltrG toTG EE Btwn Cgr EEG
    UHGrph USHGrph UMGrph USLGrph USGrph Edges Neighbors ComplUSGrph UnivVertex
    Walks Trails Paths SPaths WalkOn TrailOn PathOn SPathOn Circuits Cycles
    ConnGrph WWalks WWalksN ClWalks ClWWalks ClWWalksN 2WalksOt 2WalksOnOt
    2SPathOnOt 2SPathsOt VDeg RegGrph RegUSGrph EulPaths FriendGrph Plig RPrime
    GrpOp GId inv /g ^g AbelOp SubGrpOp Ass ExId Magma SemiGrp MndOp GrpOpHom
    GrpOpIso RingOps DivRingOps *-Fld Com2 Fld CVecOLD NrmCVec +v BaseSet .sOLD
    0vec -v normCV IndMet .iOLD SubSp LnOp normOpOLD BLnOp 0op adj HmOp
    CPreHilOLD CBan CHilOLD ~H +h .h 0h -h .ih normh Cauchy ~~>v SH CH _|_ +H
    span vH \/H 0H C_H projh 0hop Iop +op .op -op +fn .fn normop ConOp LinOp
    BndLinOp UniOp HrmOp normfn null ConFn LinFn adjh bra ketbra <_op eigvec
    eigval Lambda States CHStates HAtoms <oH MH MH* class-n class-o /e oMnd
    oGrp sgns <<< Archi SLMod oRing oField |`v subMat1 litMat CovHasRef Ldlf
    Paracomp ~Met pstoMet HCmp QQHom RRHom RRExt RR*Hom ManTop _Ind sum* oFC
    sigAlgebra sigaGen BrSiga sX measures Ddelta ae ~ae MblFnM toOMeas
    toOMeasOLD toCaraSiga sitg sitm itgm seqstr Fibci Prob cprob rRndVar oRVC
    TarskiG2D AFS _pred _Se _FrSe _trCl _TrFo Retr PCon SCon CovMap e.g |g A.g
    =g /\g -.g ->g <->g \/g E.g Fmla Sat SatE |= AxExt AxRep AxPow AxUn AxReg
    AxInf ZF mCN mVR mType mTC mAx mVT mREx mEx mDV mVars mRSubst mSubst mVH
    mPreSt mStRed mStat mFS mCls mPPSt mThm m0St mSA mWGFS mSyn mESyn mGFS
    mTree mST mSAX mUFS mUV mVL mVSubst mFresh mFRel mEval mMdl mUSyn mGMdl
    mItp mFromItp IntgRing cplMetSp HomLimB HomLim polyFld splitFld1 splitFld
    polySplitLim ZRing GF GF_oo ~Qp /Qp Qp Zp _Qp Cp TrPred wsuc WLim No <s
    bday (x) Bigcup SSet Trans Limits Fix Funs Singleton Singletons Image Cart
    Img Domain Range pprod Apply Cup Cap Succ Funpart FullFun Restrict UB LB <<
    >> XX. OuterFiveSeg TransportTo InnerFiveSeg Cgr3 Colinear FiveSeg Seg<_
    OutsideOf Line LinesEE Ray _/_\ _/_\^n Hf Fne gcdOLD Prv FF/ [b /b ]b sngl
    tag Proj (| ,, |) pr1 pr2 -Set-> curry_ uncurry_ RR>=0 RR>0 Diag inftyexpi
    CCinfty CCbar pinfty minfty RRbar infty CChat RRhat +cc -cc prcpal Arg .cc
    invc FinSum RRVec _tau ^^ TotBnd Bnd Ismty Rn RngHom RngIso ~=R CRingOps
    Idl PrIdl MaxIdl PrRing Dmn IdlGen Prt LSAtoms LSHyp <oL LFnl LKer LDual OP
    cm OL OML <o Atoms AtLat CvLat HL LLines LPlanes LVols Lines Points PSubSp
    pmap +P PCl _|_P PSubCl LHyp LAut WAtoms PAut LDil LTrn Dil Trn trL TGrp
    TEndo EDRing EDRingR DVecA DIsoA DVecH ocA vA DIsoB DIsoC DIsoH ocH joinH
    LPol LCDual mapd HVMap HDMap1 HDMap HGMap HLHil NoeACS mzPolyCld mzPoly
    Dioph Pell1QR Pell14QR Pell1234QR PellFund PellFundOLD []NN rmX rmY LFinGen
    LNoeM LNoeR ldgIdlSeq Monic Poly< degAA degAAOLD minPolyAA _ZZ IntgOver
    MEndo SubDRing CytP TopSep TopLnd r* hereditary _Cc +r -r .v PtDf RR3 line3
    (. ). ->. ->.. ,. SAlg SalOn SalGen sum^ Meas OutMeas CaraGen voln* voln
    defAt ''' (( )) RePart Even Odd GoldbachEven GoldbachOdd GoldbachOddALTV
    prefix NN0* .ef Vtx iEdg UHGraph USHGraph UPGraph UMGraph Edg USPGraph
    USGraph SubGraph FinUSGraph NeighbVtx UnivVtx ComplGraph ComplUSGraph
    VtxDeg RegGraph RegUSGraph UHGraphALTV USHGraphALTV VtxALTV GrOrder GrSize
    FinUSGrph MgmHom SubMgm clLaw assLaw comLaw intOp clIntOp assIntOp MgmALT
    CMgmALT SGrpALT CSGrpALT Rng RngHomo RngIsom RngCat RngCatALTV RingCat
    RingCatALTV DMatALT ScMatALT linC LinCo linIndS linDepS /_f _O #b digit >_
    > sinh cosh tanh sec csc cot _ . log_ Reflexive Irreflexive A! $.
  $v z w v u t f g ./\ .\/ .<_ .< .+ .- .X. ./ .^ .0. .1. .|| .~ ._|_ .+^ .+b
    .(+) .* .x. .xb ., .(x) .o. .0b C D P Q R S T U e h i j k m n o E F G H I J
    K L M N V W X Y Z O s r q p a b c d l ph' ps' ch' th' ta' et' ze' si' rh'
    ph" ps" ch" th" ta" et" ze" si" rh" ph0 ps0 ch0_ th0 ta0 et0 ze0 si0 rh0
    ph1 ps1 ch1 th1 ta1 et1 ze1 si1 rh1 a' b' c' d' e' f' g' h' i' j' k' l' m'
    n' o'_ p' q' r' s'_ t' u' v'_ w' x' y' z' a" b" c" d" e" f" g" h" i" j" k"
    l" m" n" o"_ p" q" r" s"_ t" u" v"_ w" x" y" z" a0_ b0_ c0_ d0 e0 f0_ g0 h0
    i0 j0 k0 l0 m0 n0_ o0_ p0 q0 r0 s0 t0 u0 v0 w0 x0 y0 z0 a1_ b1_ c1_ d1 e1
    f1 g1 h1 i1 j1 k1 l1 m1 n1 o1_ p1 q1 r1 s1 t1 u1 v1 w1 x1 y1 z1 A' B' C' D'
    E' F' G' H' I' J' K' L' M' N' O' P' Q' R' S' T' U' V' W' X' Y' Z' A" B" C"
    D" E" F" G" H" I" J" K" L" M" N" O" P" Q" R" S" T" U" V" W" X" Y" Z" A0 B0
    C0 D0 E0 F0 G0 H0 I0 J0 K0 L0 M0 N0 O0 P0 Q0 R0 S0 T0 U0 V0 W0 X0 Y0 Z0 A1_
    B1_ C1_ D1_ E1 F1_ G1_ H1_ I1_ J1 K1 L1_ M1_ N1 O1_ P1 Q1 R1_ S1_ T1 U1 V1_
    W1 X1 Y1 Z1 jph jps jch jth jta jet jze jsi jrh jmu jla $.
